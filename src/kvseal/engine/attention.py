"""Attention over pages, and the seam by which transformers' unmodified model classes reach it.

A model is called with an extra keyword ``paged``, which arrives at :func:`attend` in every layer. With it,
new keys and values go into the pages and attention runs over pages; without it, attention is plain and causal
over the call's own tokens, which is what the reference forward pass uses.
"""

from typing import Any, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from kvseal.engine.packing import PackedBatch
from kvseal.layout import Layout

IMPLEMENTATION = "kvseal_paged"


class StepAttention(Protocol):
    """The attention of one forward pass, prepared once and used by every layer."""

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        """Write the new keys and values into the pages, then attend with ``query``.

        ``key`` and ``value`` are [1, kv_heads, rows, head_dim], ``query`` is [1, heads, rows, head_dim].
        Returns [1, rows, heads, head_dim]. Each row sees its own sequence up to and including its own
        position, and nothing else.
        """
        ...


class AttentionKernel(Protocol):
    """One way to attend over a pool. The layout must name the same ``inner_order`` of a layer's block."""

    name: str
    inner_order: str

    def __init__(self, layout: Layout, pool: torch.Tensor) -> None:
        """``pool`` is uint8 [pages, page_bytes], contiguous and writable; the kernel keeps a view of it."""
        ...

    def prepare(self, batch: PackedBatch) -> StepAttention:
        """Everything about the batch that does not change from layer to layer."""
        ...


def register_attention() -> None:
    """Make :data:`IMPLEMENTATION` known to transformers. Idempotent."""
    AttentionInterface.register(IMPLEMENTATION, attend)
    # The pages know who may see what, so no mask is built; without an entry here transformers would build
    # one.
    AttentionMaskInterface.register(IMPLEMENTATION, _no_mask)


def attend(  # noqa: PLR0913, PLR0917 - the signature is the library's
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    paged: StepAttention | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """What a layer of a transformers model calls. Shapes as in :meth:`StepAttention.attend`."""
    # What would change the result and is not honoured here must not pass in silence.
    for name in ("sliding_window", "softcap", "s_aux", "position_bias"):
        if options.get(name) is not None:
            raise NotImplementedError(f"the paged attention does not know {name}")
    if attention_mask is not None:
        raise NotImplementedError("the paged attention takes no attention mask: the pages say who sees what")
    if paged is not None:
        return paged.attend(int(module.layer_idx), query, key, value, scaling), None  # type: ignore[arg-type]
    plain = scaled_dot_product_attention(
        query, key, value, is_causal=query.shape[2] > 1, scale=scaling, enable_gqa=True
    )
    return plain.transpose(1, 2), None


def _no_mask(*_: Any, **__: Any) -> None:
    return None
