"""Which models get a layout, with which sizes, and how all others are refused."""

import json
from typing import Any

import pytest
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from kvseal.layout import SUPPORTED, UnsupportedModel, context_limit, from_config

SMOLLM2: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rope_theta": 100000,
}


def layout_of(config: dict[str, Any], dtype: str = "bfloat16") -> Any:
    return from_config(config, page_size=16, dtype=dtype, model_digest=bytes(16))


def test_page_of_the_embedded_model_has_the_known_size() -> None:
    layout = layout_of(SMOLLM2)
    assert (layout.layers, layout.kv_heads, layout.head_dim) == (30, 3, 64)
    assert layout.token_bytes == 30 * 2 * 3 * 64 * 2
    assert layout.page_bytes == 368_640
    assert layout_of(SMOLLM2, "float32").page_bytes == 737_280
    assert context_limit(SMOLLM2) == 8192


@pytest.mark.parametrize("model_type", SUPPORTED)
def test_defaults_are_those_of_transformers(model_type: str) -> None:
    """Where config.json is silent, transformers' class fills in, and the layout must fill in the same."""
    needed = {"num_hidden_layers": 3, "num_attention_heads": 32, "hidden_size": 2048}
    theirs = AutoConfig.for_model(model_type, **needed)
    mine = layout_of({"model_type": model_type, **needed})
    head_dim = getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    assert (mine.kv_heads, mine.head_dim) == (theirs.num_key_value_heads, head_dim)
    rope = json.loads(mine.rope)
    assert rope == {**theirs.rope_parameters, "rope_theta": float(theirs.rope_parameters["rope_theta"])}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, "sliding window is in use"),
        ({"model_type": "mistral", "sliding_window": None}, "no layout is known"),
        (
            {"model_type": "qwen3", "sliding_window": 4096, "use_sliding_window": True},
            "sliding window is in use",
        ),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding window is in use"),
        ({"model_type": "llama4_text", "attention_chunk_size": 8192}, "within chunks"),
        ({"model_type": "deepseek_v3", "kv_lora_rank": 512}, "latent"),
        ({"model_type": "glm_moe_dsa", "kv_lora_rank": 512}, "latent"),
        ({"model_type": "mamba2"}, "recurrent state"),
        (
            {"model_type": "qwen3_next", "layer_types": ["linear_attention", "full_attention"]},
            "recurrent state",
        ),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "qwen3_vl", "text_config": {}}, "more than text"),
        ({"is_causal": False}, "attends to the future"),
        ({"layer_types": ["something_new"]}, "something_new"),
        ({"model_type": "gpt_neox"}, r"supported: llama, qwen3"),
        ({"num_key_value_heads": 2}, "cannot be shared out"),
        ({"num_hidden_layers": None}, "num_hidden_layers as None"),
        ({"num_attention_heads": "9"}, "num_attention_heads as '9'"),
    ],
)
def test_unsupported_models_are_refused_by_name_and_reason(changes: dict[str, Any], reason: str) -> None:
    config = SMOLLM2 | changes
    with pytest.raises(UnsupportedModel, match=reason) as caught:
        layout_of(config)
    assert caught.value.model_type == config["model_type"]
    assert repr(config["model_type"]) in str(caught.value)


def test_a_config_without_a_model_type_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="'unknown'"):
        layout_of({})


def test_every_other_causal_model_of_transformers_is_refused() -> None:
    """Fail closed: what is not known to fit is not served."""
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}
    others = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - set(SUPPORTED)
    assert len(others) > 100
    for model_type in sorted(others):
        with pytest.raises(UnsupportedModel, match=model_type):
            layout_of({"model_type": model_type, **sizes})


def test_a_window_that_qwen_switches_off_does_not_count() -> None:
    config = SMOLLM2 | {"model_type": "qwen3", "sliding_window": 4096}
    assert layout_of(config | {"use_sliding_window": False}) == layout_of(config)


def test_context_limit_must_be_said() -> None:
    with pytest.raises(UnsupportedModel, match="max_position_embeddings"):
        context_limit({"model_type": "llama"})
