"""A model folder's digest: same meaning, same digest; any other byte, another."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvseal.layout import ModelUnreadable, model_digest, read_config, weight_files

CONFIG = {"model_type": "llama", "hidden_size": 64, "rope_theta": 1e4, "dtype": "float32"}


def write(folder: Path, *, config: dict[str, Any] | None = None, **files: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    for name, content in (files or {"model": bytes(5 << 20)}).items():
        (folder / f"{name}.safetensors").write_bytes(content)
    return folder


def shards(folder: Path, *names: str) -> None:
    index = {"weight_map": {f"tensor{i}": name for i, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_same_content_elsewhere_has_the_same_digest(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a"), write(tmp_path / "b")
    assert model_digest(first) == model_digest(second)
    assert len(model_digest(first)) == 16


def test_order_and_bookkeeping_of_the_config_do_not_matter(tmp_path: Path) -> None:
    changed = {
        "transformers_version": "9",
        "torch_dtype": "bfloat16",
        "use_cache": False,
        "_name_or_path": "x",
    }
    reordered = dict(reversed([*CONFIG.items(), *changed.items()]))
    assert model_digest(write(tmp_path / "a")) == model_digest(write(tmp_path / "b", config=reordered))


@pytest.mark.parametrize("change", [{"hidden_size": 65}, {"rope_theta": 1e5}, {"new_field": True}])
def test_meaning_of_the_config_matters(tmp_path: Path, change: dict[str, Any]) -> None:
    assert model_digest(write(tmp_path / "a")) != model_digest(write(tmp_path / "b", config=CONFIG | change))


@pytest.mark.parametrize("place", [0, 1 << 20, (4 << 20) - 1, 4 << 20, (5 << 20) - 1])
def test_every_bit_of_the_weights_matters(tmp_path: Path, place: int) -> None:
    weights = bytearray(5 << 20)
    weights[place] ^= 1
    assert model_digest(write(tmp_path / "a")) != model_digest(write(tmp_path / "b", model=bytes(weights)))


def test_a_truncated_file_has_another_digest(tmp_path: Path) -> None:
    assert model_digest(write(tmp_path / "a")) != model_digest(
        write(tmp_path / "b", model=bytes((5 << 20) - 1))
    )


def test_bytes_cannot_move_from_one_file_to_the_next(tmp_path: Path) -> None:
    folders = [write(tmp_path / "a", s1=b"ab", s2=b"c"), write(tmp_path / "b", s1=b"a", s2=b"bc")]
    for folder in folders:
        shards(folder, "s1.safetensors", "s2.safetensors")
    assert model_digest(folders[0]) != model_digest(folders[1])


def test_files_that_the_index_does_not_name_are_no_weights(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", s1=b"1", s2=b"2", stray=b"3")
    shards(folder, "s2.safetensors", "s1.safetensors", "s2.safetensors")
    assert [path.name for path in weight_files(folder)] == ["s1.safetensors", "s2.safetensors"]


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", s1=b"1")
    shards(folder, "s1.safetensors", "s2.safetensors")
    with pytest.raises(ModelUnreadable, match=r"weights are missing.*s2\.safetensors"):
        model_digest(folder)


def test_an_index_cannot_reach_outside_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "other")
    folder = write(tmp_path / "a")
    shards(folder, "../other/model.safetensors")
    with pytest.raises(ModelUnreadable, match="not a file of this folder"):
        weight_files(folder)


def test_pickled_weights_are_not_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelUnreadable, match=r"convert it to safetensors"):
        weight_files(folder)


@pytest.mark.parametrize("text", ["", "{", "[1]", "\xff", '"text"'])
def test_a_config_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelUnreadable, match=r"config\.json"):
        read_config(tmp_path)


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(ModelUnreadable, match="is not a folder"):
        read_config(tmp_path / "x")


@pytest.mark.parametrize("text", ["{}", '{"weight_map": {}}', '{"weight_map": []}', "[]"])
def test_an_index_without_a_map_is_named(tmp_path: Path, text: str) -> None:
    folder = write(tmp_path / "a")
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelUnreadable, match="weight_map"):
        weight_files(folder)
