"""Servers that several tests share: starting one takes seconds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.harness import Served, serving, tiny_model


@pytest.fixture(scope="session")
def tiny_folder(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with the embedded one's tokenizer."""
    return tiny_model(model_folder, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def smollm2(model_folder: Path) -> Iterator[Served]:
    """The embedded model in fp32, one prefill and one decode worker."""
    options = {"dtype": "float32", "prefill_pool_tokens": 9000, "decode_pool_tokens": 18_000}
    with serving(model_folder, options) as served:
        yield served
