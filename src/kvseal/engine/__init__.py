"""torch: loading a model, attention over pages, one packed forward pass, sampling. No sockets, no leases."""

from kvseal.engine.attention import AttentionKernel, StepAttention
from kvseal.engine.gather import SdpaGather
from kvseal.engine.loading import load_model
from kvseal.engine.native_attention import KernelUnavailable, choose_kernel, native_kernels
from kvseal.engine.runner import Engine, Reference, StepResult
from kvseal.layout import default_dtype, model_digest

__all__ = [
    "AttentionKernel",
    "Engine",
    "KernelUnavailable",
    "Reference",
    "SdpaGather",
    "StepAttention",
    "StepResult",
    "choose_kernel",
    "default_dtype",
    "load_model",
    "model_digest",
    "native_kernels",
]
