"""A place to listen and a secret."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that only we can enter. A test's own one can have a longer path than a socket may."""
    with tempfile.TemporaryDirectory(prefix="kvs-") as path:
        yield Path(path)


@pytest.fixture
def address(directory: Path) -> str:
    return f"unix:{directory}/s"


@pytest.fixture
def secret() -> bytes:
    return bytes(range(32))
