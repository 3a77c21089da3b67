"""Rotary position settings in one canonical form, whichever field names a config.json uses."""

import json
from collections.abc import Mapping
from typing import Any, Final

from kvseal.layout.errors import UnsupportedModel

DEFAULT_THETA: Final = 10_000.0

# Frequencies are fixed when the model is loaded, so a key depends on its own position and on nothing else.
_FIXED_TYPES: Final = frozenset({"default", "linear", "llama3", "yarn"})
_PER_LAYER_KEYS: Final = frozenset(
    {"full_attention", "sliding_attention", "chunked_attention", "linear_attention"}
)


def rope_settings(config: Mapping[str, Any], model_type: str, partial_rotary_factor: float | None) -> str:
    """Canonical JSON of the effective settings of a raw ``config.json``.

    ``partial_rotary_factor`` is the family's default. Raises :class:`UnsupportedModel` for kinds whose
    frequencies change with the longest sequence of a batch: a page would then depend on its neighbours.
    """
    given = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(given, Mapping):
        raise UnsupportedModel(model_type, "its rotary position settings are not a table")
    if _PER_LAYER_KEYS.intersection(given):
        raise UnsupportedModel(model_type, "it has other rotary position settings for each kind of layer")
    kind = given.get("rope_type") or given.get("type") or "default"
    if kind not in _FIXED_TYPES:
        raise UnsupportedModel(
            model_type,
            f"rotary position embedding of type {kind!r}; pages need frequencies that do not depend on "
            f"the length of a sequence ({', '.join(sorted(_FIXED_TYPES))})",
        )
    settings = {key: value for key, value in given.items() if key != "type" and value is not None}
    settings["rope_type"] = kind
    settings.setdefault("rope_theta", config.get("rope_theta") or DEFAULT_THETA)
    settings["rope_theta"] = float(settings["rope_theta"])
    factor = config.get("partial_rotary_factor", partial_rotary_factor)
    if factor is not None:
        settings.setdefault("partial_rotary_factor", factor)
    if kind != "default":
        # The scaled kinds fall back on these numbers where they do not state their own.
        settings["max_position_embeddings"] = config.get("max_position_embeddings")
        settings["original_max_position_embeddings"] = (
            config.get("original_max_position_embeddings")
            or settings.get("original_max_position_embeddings")
            or config.get("max_position_embeddings")
        )
    return json.dumps(settings, sort_keys=True, separators=(",", ":"), allow_nan=False)
