"""Tiny models with random weights, one of each supported family, saved like any model folder."""

from pathlib import Path
from typing import Any, Final

import torch
from transformers import (
    AutoModelForCausalLM,
    Glm4Config,
    Glm4MoeConfig,
    GlmConfig,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3MoeConfig,
)

VOCABULARY: Final = 211

_SIZES: Final[dict[str, Any]] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    # Wider than a trained model starts with, so that attention matters and the best token wins clearly.
    "initializer_range": 0.25,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "eos_token_id": 2,
}
# head_dim stands in the files of these families and not in the signatures of their classes.
_EXPERTS: Final[dict[str, Any]] = {"head_dim": 16, "moe_intermediate_size": 32, "num_experts_per_tok": 2}
_LLAMA3: Final = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

CONFIGS: Final[dict[str, PreTrainedConfig]] = {
    "llama": LlamaConfig(**_SIZES),
    "llama-llama3-rope": LlamaConfig(**_SIZES, rope_parameters=_LLAMA3),
    "llama-no-groups": LlamaConfig(**{**_SIZES, "num_key_value_heads": 6}),
    "qwen3": Qwen3Config(**_SIZES, head_dim=20),
    "qwen3_moe": Qwen3MoeConfig(**_SIZES, **_EXPERTS, num_experts=8),
    "glm": GlmConfig(**_SIZES, head_dim=16),
    "glm4": Glm4Config(**_SIZES, head_dim=16),
    "glm4_moe": Glm4MoeConfig(**_SIZES, **_EXPERTS, n_routed_experts=8, n_shared_experts=1, use_qk_norm=True),
}


def save(name: str, folder: Path) -> Path:
    """Write the family's model into ``folder``; the same weights each time."""
    torch.manual_seed(sorted(CONFIGS).index(name))
    from_config: Any = AutoModelForCausalLM.from_config  # untyped
    model = from_config(CONFIGS[name], dtype=torch.float32)
    model.save_pretrained(folder)
    return folder


def plain(folder: Path) -> PreTrainedModel:
    """The model as transformers itself runs it, float32, with its eager attention."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    assert isinstance(model, PreTrainedModel)
    model.train(mode=False)
    return model
