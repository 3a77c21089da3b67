"""What the bytes of a page mean, from a model's configuration alone. Torch-free: every tool can use it."""

from kvseal.layout.dtypes import default_dtype, item_bytes
from kvseal.layout.errors import ModelUnreadable, UnsupportedModel
from kvseal.layout.families import SUPPORTED, context_limit, from_config
from kvseal.layout.folder import model_digest, read_config, weight_files
from kvseal.layout.layout import KEYS_IN_ROWS, KEYS_IN_WORDS, Layout, Segment

__all__ = [
    "KEYS_IN_ROWS",
    "KEYS_IN_WORDS",
    "SUPPORTED",
    "Layout",
    "ModelUnreadable",
    "Segment",
    "UnsupportedModel",
    "context_limit",
    "default_dtype",
    "from_config",
    "item_bytes",
    "model_digest",
    "read_config",
    "weight_files",
]
