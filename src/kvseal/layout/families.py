"""From a model's raw ``config.json`` to its layout, without torch and without transformers.

Only decoder models whose every layer attends to the whole past with grouped-query attention have a layout
here. All others are refused by name, with what a token of theirs would leave behind that these pages cannot
hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kvseal.layout.errors import UnsupportedModel
from kvseal.layout.layout import KEYS_IN_ROWS, Layout, Segment
from kvseal.layout.rope import rope_settings


@dataclass(frozen=True, slots=True)
class _Family:
    """What transformers assumes where config.json is silent. None: derived from the other sizes."""

    kv_heads: int | None = None
    head_dim: int | None = None
    partial_rotary_factor: float | None = None


_FAMILIES: Final[dict[str, _Family]] = {
    "llama": _Family(),
    "qwen3": _Family(kv_heads=32, head_dim=128),
    "qwen3_moe": _Family(kv_heads=4),
    "glm": _Family(kv_heads=2, head_dim=128, partial_rotary_factor=0.5),
    "glm4": _Family(kv_heads=2, head_dim=128, partial_rotary_factor=0.5),
    "glm4_moe": _Family(kv_heads=8, partial_rotary_factor=0.5),
}
SUPPORTED: Final = tuple(_FAMILIES)

_RECURRENT_KINDS: Final = frozenset({"linear_attention", "mamba", "mamba2", "recurrent", "rwkv", "hybrid"})
_RECURRENT_TYPES: Final = (
    "mamba",
    "rwkv",
    "recurrent_gemma",
    "jamba",
    "falcon_h1",
    "bamba",
    "xlstm",
    "zamba",
)


def from_config(
    config: Mapping[str, Any],
    *,
    page_size: int,
    dtype: str,
    model_digest: bytes,
    inner_order: str = KEYS_IN_ROWS,
) -> Layout:
    """The layout of pages of ``page_size`` tokens for the model that ``config`` describes.

    ``config`` is a parsed config.json, ``dtype`` is the format of the cache, ``inner_order`` what the
    attention kernel asks for. Raises :class:`UnsupportedModel`, naming the model type and the reason.
    """
    model_type = str(config.get("model_type") or "unknown")
    if reason := _refusal(config, model_type):
        raise UnsupportedModel(model_type, reason)
    family = _FAMILIES[model_type]
    layers = _size(config, "num_hidden_layers", model_type)
    heads = _size(config, "num_attention_heads", model_type)
    kv_heads = config.get("num_key_value_heads") or family.kv_heads or heads
    head_dim = config.get("head_dim") or family.head_dim or _size(config, "hidden_size", model_type) // heads
    if heads % kv_heads:
        raise UnsupportedModel(
            model_type, f"{heads} query heads cannot be shared out over {kv_heads} key heads"
        )
    segment = Segment(
        name="kv", layers=tuple(range(layers)), token_shape=(2, kv_heads, head_dim), dtype=dtype
    )
    return Layout(
        adapter="gqa",
        model_digest=model_digest,
        page_size=page_size,
        dtype=dtype,
        layers=layers,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rope=rope_settings(config, model_type, family.partial_rotary_factor),
        inner_order=inner_order,
        segments=(segment,),
    )


def context_limit(config: Mapping[str, Any]) -> int:
    """The longest sequence, in tokens, that the model was made for."""
    return _size(config, "max_position_embeddings", str(config.get("model_type") or "unknown"))


def _refusal(config: Mapping[str, Any], model_type: str) -> str | None:
    """Why these pages cannot serve the model, or None. The particular reasons come before the general one."""
    reason = _other_cache(config, model_type) or _other_attention(config, model_type)
    if reason is None and model_type not in _FAMILIES:
        reason = f"no layout is known for it (supported: {', '.join(SUPPORTED)})"
    return reason


def _other_cache(config: Mapping[str, Any], model_type: str) -> str | None:
    kinds = set(config.get("layer_types") or config.get("layers_block_type") or ())
    if config.get("is_encoder_decoder"):
        return "it is an encoder-decoder: its answer depends on an encoder's output that no page holds"
    if config.get("quantization_config") or config.get("compression_config"):
        return "its weights are quantised, and which cache that leaves is not checked"
    if config.get("kv_lora_rank"):
        return "its cache is a latent (multi-head latent attention), which these pages do not hold"
    if kinds & _RECURRENT_KINDS or model_type.startswith(_RECURRENT_TYPES) or config.get("ssm_cfg"):
        return "it keeps a recurrent state, which is not made of tokens and cannot be paged"
    if "text_config" in config or "vision_config" in config:
        return "it takes more than text, and page ids name text tokens only"
    return None


def _other_attention(config: Mapping[str, Any], model_type: str) -> str | None:
    kinds = set(config.get("layer_types") or ()) - {"full_attention"}
    # Qwen configurations carry a window that counts only where a flag of its own switches it on.
    switched = model_type.startswith("qwen")
    windowed = config.get("sliding_window") and config.get("use_sliding_window", not switched)
    if windowed or "sliding_attention" in kinds:
        return "a sliding window is in use, and these pages are read as a whole"
    if config.get("attention_chunk_size") or "chunked_attention" in kinds:
        return "some layers attend within chunks, and these pages are read as a whole"
    if config.get("is_causal") is False:
        return "it attends to the future, so a page would depend on what follows it"
    if kinds:
        return f"it has layers of the kinds {', '.join(sorted(map(str, kinds)))}"
    return None


def _size(config: Mapping[str, Any], name: str, model_type: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UnsupportedModel(
            model_type, f"its config.json gives {name} as {value!r}, not as a positive number"
        )
    return value
