"""The kernels `native-…`: attention over the pages where they lie, in C. `_attention.c` says how.

One class for each level of vector instructions, and the choice between them and `sdpa-gather`. The extension
is optional: without a compiler at install there is no native kernel, and the choice says so by its name.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from kvseal.core.errors import StartRefused
from kvseal.engine.attention import AttentionKernel, StepAttention
from kvseal.engine.gather import SdpaGather
from kvseal.engine.packing import PackedBatch
from kvseal.layout import KEYS_IN_WORDS, Layout, item_bytes

_attention: Any
try:
    from kvseal.engine import _attention
except ImportError:  # no compiler where kvseal was installed
    _attention = None

Wish = Literal["auto", "native", "sdpa"]

_WORD_BYTES = 4


class KernelUnavailable(StartRefused):
    """The attention that was asked for cannot run here; the text says why."""


class _Native:
    """An AttentionKernel. Computes with as many threads as torch does when it is made."""

    name = "native"
    inner_order = KEYS_IN_WORDS
    level = ""

    def __init__(self, layout: Layout, pool: torch.Tensor) -> None:
        self.layout = layout
        self.dtype: torch.dtype = getattr(torch, layout.dtype)
        self._kernel = _attention.open(
            pool.numpy(),
            self.level,
            layout.layers,
            layout.kv_heads,
            layout.head_dim,
            layout.page_size,
            item_bytes(layout.dtype),
            torch.get_num_threads(),
        )

    def prepare(self, batch: PackedBatch) -> StepAttention:
        """The batch, copied and checked once more against the pool, for all layers."""
        plan = _attention.prepare(self._kernel, batch.bounds, batch.ends, np.concatenate(batch.tables))
        return _NativeStep(self.layout, self.dtype, int(batch.bounds[-1]), plan)


class NativeAvx512Bf16(_Native):
    """AVX-512 that multiplies pairs of bfloat16."""

    name = "native-avx512-bf16"
    level = "avx512bf16"


class NativeAvx512(_Native):
    """AVX-512: the scores of 16 tokens in a vector."""

    name = "native-avx512"
    level = "avx512"


class NativeAvx2(_Native):
    """AVX2 and FMA: 8 tokens in a vector."""

    name = "native-avx2"
    level = "avx2"


class NativeGeneric(_Native):
    """4 tokens in a vector, by the instructions that every processor of the architecture has."""

    name = "native-generic"
    level = "generic"


_KERNELS = (NativeAvx512Bf16, NativeAvx512, NativeAvx2, NativeGeneric)


class _NativeStep:
    """One forward pass. See :class:`kvseal.engine.attention.StepAttention`."""

    __slots__ = ("_dtype", "_layout", "_plan", "_rows")

    def __init__(self, layout: Layout, dtype: torch.dtype, rows: int, plan: object) -> None:
        self._layout = layout
        self._dtype = dtype
        self._rows = rows
        self._plan = plan

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        """See :class:`kvseal.engine.attention.StepAttention`."""
        layout, heads = self._layout, query.shape[1]
        # C gets addresses: what they point to must be what the layout says, in this very call.
        assert key.shape == value.shape == (1, layout.kv_heads, self._rows, layout.head_dim)
        assert query.shape == (1, heads, self._rows, layout.head_dim)
        assert query.dtype == key.dtype == value.dtype == self._dtype
        assert query.device.type == key.device.type == value.device.type == "cpu"
        query, key, value = _dense(query), _dense(key), _dense(value)
        out = query.new_empty(1, self._rows, heads, layout.head_dim)
        size = query.element_size()
        _attention.attend(
            self._plan,
            layer,
            heads,
            scaling,
            out.data_ptr(),
            *(query.data_ptr(), query.stride(1) * size, query.stride(2) * size),
            *(key.data_ptr(), key.stride(1) * size, key.stride(2) * size),
            *(value.data_ptr(), value.stride(1) * size, value.stride(2) * size),
        )
        return out


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of one head and row side by side; heads and rows may have any stride."""
    return tensor if tensor.stride(3) == 1 else tensor.contiguous()


def native_kernels() -> Sequence[type[AttentionKernel]]:
    """The native kernels that run on this processor, best first; none where the extension was not built."""
    if _attention is None:
        return ()
    here = _attention.levels()
    return tuple(kernel for kernel in _KERNELS if kernel.level in here)


def choose_kernel(wish: Wish, head_dim: int, dtype: str) -> type[AttentionKernel]:
    """The kernel for a model's ``head_dim`` and the cache's ``dtype``.

    "auto" takes the best native one and falls back to `sdpa-gather`; "native" refuses to fall back and raises
    :class:`KernelUnavailable` with the reason.
    """
    if wish == "sdpa":
        return SdpaGather
    kernels = native_kernels()
    reason = ""
    if not kernels:
        reason = "its extension was not built when kvseal was installed (there was no C compiler)"
    elif head_dim * item_bytes(dtype) % _WORD_BYTES:
        reason = f"it cannot cut heads of {head_dim} {dtype} numbers into words of {_WORD_BYTES} bytes"
    if not reason:
        return next(kernel for kernel in kernels if dtype == "bfloat16" or kernel is not NativeAvx512Bf16)
    if wish == "native":
        raise KernelUnavailable(f"native attention is not available: {reason}")
    return SdpaGather
