"""Rotary settings: old and new names mean the same, other values do not, moving frequencies are refused."""

from typing import Any

import pytest

from kvseal.layout import UnsupportedModel
from kvseal.layout.rope import rope_settings

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def settings(partial: float | None = None, **config: Any) -> str:
    return rope_settings({"max_position_embeddings": 8192, **config}, "llama", partial)


def test_old_and_new_field_names_mean_the_same() -> None:
    new = settings(rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3})
    old = settings(rope_theta=500000, rope_scaling={"type": "llama3", **LLAMA3})
    assert old == new


def test_silence_means_the_default() -> None:
    assert settings() == settings(
        rope_theta=10000.0, rope_scaling=None, rope_parameters={"rope_type": "default"}
    )
    assert settings() == '{"rope_theta":10000.0,"rope_type":"default"}'


def test_partial_rotation_comes_from_the_settings_then_the_config_then_the_family() -> None:
    assert '"partial_rotary_factor":0.5' in settings(0.5)
    assert '"partial_rotary_factor":0.25' in settings(0.5, partial_rotary_factor=0.25)
    inner = {"rope_type": "default", "partial_rotary_factor": 0.75}
    assert '"partial_rotary_factor":0.75' in settings(0.5, partial_rotary_factor=0.25, rope_parameters=inner)


def test_scaled_kinds_depend_on_the_length_that_the_model_was_made_for() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0}
    assert settings(rope_scaling=yarn) != rope_settings(
        {"max_position_embeddings": 4096, "rope_scaling": yarn}, "llama", None
    )


@pytest.mark.parametrize("change", [{"rope_theta": 1e6}, {"rope_scaling": {"type": "linear", "factor": 2.0}}])
def test_other_settings_give_another_text(change: dict[str, Any]) -> None:
    assert settings(**change) != settings()


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "su", "mrope"])
def test_frequencies_that_move_with_the_batch_are_refused(kind: str) -> None:
    """A page would depend on the longest neighbour in its pass."""
    with pytest.raises(UnsupportedModel, match=kind):
        settings(rope_scaling={"rope_type": kind, "factor": 2.0})


def test_settings_for_each_kind_of_layer_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="each kind of layer"):
        settings(rope_parameters={"full_attention": {"rope_type": "default"}})


def test_settings_that_are_no_table_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="not a table"):
        settings(rope_parameters=[1])
