"""Model folders are made once for a run; the models in them are small enough to load for each module."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.engine.families import plain, save
from transformers import PreTrainedModel

from kvseal.engine import load_model


class Pair(NamedTuple):
    """The same weights twice: as the engine runs them, and as transformers does."""

    folder: Path
    model: PreTrainedModel
    plain: PreTrainedModel

    def load(self, dtype: str) -> PreTrainedModel:
        return load_model(self.folder, dtype, threads=1)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    @cache
    def make(name: str) -> Pair:
        folder = save(name, tmp_path_factory.mktemp("models") / name)
        return Pair(folder, load_model(folder, "float32", threads=1), plain(folder))

    return make
