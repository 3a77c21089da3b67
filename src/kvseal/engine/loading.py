"""From a folder on disk to a model that attends over pages. Never from the network, never by unpickling."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from kvseal.engine.attention import IMPLEMENTATION, register_attention
from kvseal.layout import ModelUnreadable, from_config, item_bytes, read_config, weight_files

_log = logging.getLogger(__name__)
_MOST_NAMES = 5


def load_model(folder: Path, dtype: str, threads: int) -> PreTrainedModel:
    """The model in ``folder``, in ``float32`` or ``bfloat16``, ready for an Engine.

    ``threads`` is the number of threads that torch computes with in this process. Weights whose number format
    is already ``dtype`` stay a mapping of the files, shared by all processes that load them; others are
    converted into private memory. Raises :class:`ModelUnreadable` or :class:`UnsupportedModel`, before torch
    reads a byte wherever that can be known.
    """
    if threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    item_bytes(dtype)
    # The layout is made here only to be refused early and by name; page size and digest do not matter for
    # that.
    from_config(read_config(folder), page_size=1, dtype=dtype, model_digest=bytes(16))
    weight_files(folder)
    _set_threads(threads)
    register_attention()
    model, report = _read(folder, getattr(torch, dtype))
    # transformers fills what is missing with random numbers and goes on; a server must not.
    for kind in ("missing_keys", "mismatched_keys"):
        if names := sorted(map(str, report.get(kind) or ())):
            shown = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
            raise ModelUnreadable(
                f"model folder {folder}: {len(names)} {kind.replace('_keys', '')} weights: {shown}"
            )
    if unexpected := report.get("unexpected_keys"):
        _log.info("model folder %s: %d weights are not used by the model class", folder, len(unexpected))
    model.train(mode=False)
    model.requires_grad_(False)
    return model


def _read(folder: Path, dtype: torch.dtype) -> tuple[PreTrainedModel, dict[str, Any]]:
    from_pretrained: Any = AutoModelForCausalLM.from_pretrained  # its type leaves out the loading report
    with _without_progress_bar():
        try:
            model, report = from_pretrained(
                folder,
                dtype=dtype,
                attn_implementation=IMPLEMENTATION,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
            )
        except (OSError, SafetensorError, ValueError, RuntimeError) as error:
            raise ModelUnreadable(f"model folder {folder}: {error}") from error
    return model, report


@contextmanager
def _without_progress_bar() -> Iterator[None]:
    """A worker's output is a log, and its supervisor shows the progress that matters."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _set_threads(threads: int) -> None:
    torch.set_num_threads(threads)
    # One pass at a time: a second pool of threads would only take cores away. torch allows it to be set once.
    if torch.get_num_interop_threads() != 1:
        try:
            torch.set_num_interop_threads(1)
        except RuntimeError:
            _log.info(
                "torch's interop threads were in use already and stay at %d", torch.get_num_interop_threads()
            )
