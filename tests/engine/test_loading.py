"""What load_model takes, and what it refuses with which words."""

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine.conftest import Pair
from tests.engine.rig import layout_of

from kvseal.engine import Engine, load_model
from kvseal.engine.attention import attend
from kvseal.layout import ModelUnreadable, UnsupportedModel


@pytest.fixture
def folder(pair: Callable[[str], Pair], tmp_path: Path) -> Path:
    return Path(shutil.copytree(pair("llama").folder, tmp_path / "model"))


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_loads_without_a_network_and_computes_no_gradients(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    model = load_model(folder, "bfloat16", threads=1)
    assert model.dtype == torch.bfloat16
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_threads_are_what_was_asked(folder: Path) -> None:
    load_model(folder, "float32", threads=2)
    assert torch.get_num_threads() == 2
    load_model(folder, "float32", threads=1)
    assert torch.get_num_threads() == 1


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelUnreadable, match=r"nowhere: does not exist"):
        load_model(tmp_path / "nowhere", "float32", threads=1)


def test_folder_without_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelUnreadable, match=r"there is no config\.json"):
        load_model(tmp_path, "float32", threads=1)


def test_folder_without_weights_is_named(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelUnreadable, match=r"weights are missing"):
        load_model(folder, "float32", threads=1)


def test_unsupported_model_is_refused_by_name_before_its_weights_are_looked_for(folder: Path) -> None:
    edit(folder, model_type="mamba2")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModel, match=r"'mamba2'.*recurrent state"):
        load_model(folder, "float32", threads=1)


def test_a_missing_tensor_is_an_error_and_not_a_random_number(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ModelUnreadable, match=r"1 missing weights: model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(folder, "float32", threads=1)


def test_a_tensor_of_another_size_is_an_error(folder: Path) -> None:
    edit(folder, intermediate_size=72)
    with pytest.raises(ModelUnreadable):
        load_model(folder, "float32", threads=1)


def test_truncated_weights_are_an_error(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ModelUnreadable, match=str(folder)):
        load_model(folder, "float32", threads=1)


@pytest.mark.parametrize(("dtype", "threads"), [("float16", 1), ("int8", 1), ("float32", 0)])
def test_wrong_arguments_are_errors(folder: Path, dtype: str, threads: int) -> None:
    with pytest.raises(ValueError, match=r"dtype|threads"):
        load_model(folder, dtype, threads)


def pool_for(folder: Path, **changes: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.zeros((4, layout_of(folder, 16, **changes).page_bytes), dtype=np.uint8)


def test_engine_refuses_a_model_that_attends_elsewhere(pair: Callable[[str], Pair]) -> None:
    both = pair("llama")
    with pytest.raises(ValueError, match=r"load_model"):
        Engine(both.plain, layout_of(both.folder, 16), pool_for(both.folder))


def test_engine_refuses_a_layout_of_another_dtype(pair: Callable[[str], Pair]) -> None:
    both = pair("llama")
    with pytest.raises(ValueError, match=r"torch\.float32 .* bfloat16"):
        Engine(both.model, layout_of(both.folder, 16, "bfloat16"), pool_for(both.folder, dtype="bfloat16"))


def test_engine_refuses_a_layout_of_another_inner_order(pair: Callable[[str], Pair]) -> None:
    both = pair("llama")
    layout = layout_of(both.folder, 16)
    object.__setattr__(layout, "inner_order", "other /1")
    with pytest.raises(ValueError, match=r"'other /1'"):
        Engine(both.model, layout, pool_for(both.folder))


@pytest.mark.parametrize("kind", ["narrow", "wrong dtype", "read-only", "strided", "empty"])
def test_engine_refuses_a_pool_that_is_not_one(pair: Callable[[str], Pair], kind: str) -> None:
    both = pair("llama")
    layout = layout_of(both.folder, 16)
    pool = pool_for(both.folder)
    read_only = pool.copy()
    read_only.flags.writeable = False
    pools = {
        "narrow": pool[:, :-4],
        "wrong dtype": pool.view(np.int8),
        "read-only": read_only,
        "strided": np.zeros((8, layout.page_bytes), np.uint8)[::2],
        "empty": pool[:0],
    }
    with pytest.raises(ValueError, match=r"the pool must be"):
        Engine(both.model, layout, pools[kind])  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["sliding_window", "softcap", "s_aux"])
def test_attention_refuses_options_that_it_would_have_to_ignore(option: str) -> None:
    query = torch.zeros(1, 2, 3, 4)
    with pytest.raises(NotImplementedError, match=option):
        attend(torch.nn.Module(), query, query, query, None, 1.0, None, **{option: 1})


def test_attention_refuses_a_mask() -> None:
    query = torch.zeros(1, 2, 3, 4)
    with pytest.raises(NotImplementedError, match="mask"):
        attend(torch.nn.Module(), query, query, query, torch.ones(3, 3), 1.0)
