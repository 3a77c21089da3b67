"""Which transport a conformance test runs over, and short private directories for sockets."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.transport.kinds import KINDS


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The name of a transport that is installed."""
    name: str = request.param
    if KINDS[name].missing:
        pytest.skip(f"{KINDS[name].needs} is not installed")
    return name


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """Not pytest's tmp_path, whose length leaves no room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="kvseal-") as path:
        yield Path(path)
