"""From a configuration to the settings of each process."""

import json
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from kvseal.core.errors import StartRefused
from kvseal.supervisor import plan as planning
from kvseal.supervisor.config import ServeConfig
from kvseal.supervisor.plan import make_plan

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1000,
    "vocab_size": 100,
    "rope_theta": 10_000.0,
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "Toy-1M"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file({}, folder / "model.safetensors")
    return folder


def test_pools_are_two_and_four_contexts_and_a_reserve_by_default(model: Path, tmp_path: Path) -> None:
    """The operator of the incident went from less than one context to two."""
    plan = make_plan(ServeConfig(dtype="float32"), model, tmp_path, 3)
    pools = {worker.role: worker.pool_pages * worker.page_size for worker in plan.workers}
    assert plan.context == 1000
    assert pools == {"prefill": 2016, "decode": 4016}


def test_a_pool_is_rounded_up_to_whole_pages(model: Path, tmp_path: Path) -> None:
    config = ServeConfig(dtype="float32", prefill_pool_tokens=1025, page_size=16)
    assert make_plan(config, model, tmp_path, 3).workers[0].pool_pages == 65


def test_auto_leaves_the_context_to_what_was_allocated(model: Path, tmp_path: Path) -> None:
    plan = make_plan(ServeConfig(dtype="float32", max_context="auto"), model, tmp_path, 3)
    assert plan.context is None
    assert plan.gateway.context is None


def test_every_worker_gets_the_attention_that_was_asked_for(model: Path, tmp_path: Path) -> None:
    plan = make_plan(ServeConfig(dtype="float32", attention="sdpa"), model, tmp_path, 3)
    assert {worker.attention for worker in plan.workers} == {"sdpa"}


def test_there_are_as_many_workers_as_asked_for_and_one_gateway_that_waits_for_them(
    model: Path, tmp_path: Path
) -> None:
    plan = make_plan(ServeConfig(dtype="float32", prefill=2, decode=3), model, tmp_path, 3)
    assert [worker.role for worker in plan.workers] == ["prefill"] * 2 + ["decode"] * 3
    assert (plan.gateway.prefill, plan.gateway.decode) == (2, 3)
    assert plan.model_id == "Toy-1M"


def test_pools_that_memory_cannot_hold_are_refused_with_both_numbers(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable:       1024 kB\n")
    monkeypatch.setattr(planning, "_MEMINFO", meminfo)
    with pytest.raises(
        StartRefused, match=r"need 0\.\d GiB .*0\.0 GiB of memory are available.*--decode-pool"
    ):
        make_plan(ServeConfig(dtype="float32", decode_pool_tokens=100_000), model, tmp_path, 3)
