"""One forward pass of the engine against transformers' own, and both against what the machine allows.

    python benchmarks/engine_step.py [--dtype bfloat16] [--batches 1,8,32] [--context 512] [--json out.json]

Prefill: one pass over `context` tokens of each sequence, in chunks of at most `--chunk` tokens. Decode:
passes of one token for each sequence, with `context` tokens in the cache. The two engines take turns; the
best pass of each counts, since others use the machine too. The floor of a decode step is bytes (weights once,
each cache once) over the memory bandwidth, that of a prefill is arithmetic over the speed of a large matrix
product, both measured in the same run.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel

from kvseal.core.batch import Slice
from kvseal.core.leases import BlockTable
from kvseal.core.sampling import SamplingParams
from kvseal.engine import Engine, load_model
from kvseal.layout import Layout, default_dtype, from_config, model_digest, read_config
from kvseal.model import default_home, ensure

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
VOCABULARY = 40_000  # token ids below it exist in the embedded model


class Row(NamedTuple):
    """One line of the table, in tokens per second."""

    phase: str
    batch: int
    kvseal: float
    transformers: float
    floor: float


class Machine(NamedTuple):
    """What the machine can do at most with these threads: bytes and operations per second."""

    bandwidth: float
    flops: float


def best_of(times: int, clock: Callable[[], float], *works: Callable[[], object]) -> list[float]:
    """Shortest time of each, in seconds, taking turns."""
    shortest = [float("inf")] * len(works)
    for _ in range(times):
        for i, work in enumerate(works):
            began = clock()
            work()
            shortest[i] = min(shortest[i], clock() - began)
    return shortest


def measure_machine(dtype: torch.dtype, clock: Callable[[], float]) -> Machine:
    block = torch.ones(1 << 27, dtype=torch.float32)
    left = torch.randn(2048, 2048).to(dtype)
    (read,) = best_of(5, clock, block.sum)
    (product,) = best_of(5, clock, lambda: left @ left)
    return Machine(block.nbytes / read, 2 * 2048**3 / product)


class Ours:
    """The engine, with a pool that holds the largest batch."""

    def __init__(self, folder: Path, dtype: str, threads: int, sequences: int, tokens: int) -> None:
        self.model = load_model(folder, dtype, threads)
        self.layout: Layout = from_config(
            read_config(folder), page_size=16, dtype=dtype, model_digest=model_digest(folder)
        )
        self.pages = self.layout.pages_for(tokens)
        pool = np.zeros((sequences * self.pages, self.layout.page_bytes), dtype=np.uint8)
        self.engine = Engine(self.model, self.layout, pool)
        # Shuffled: a pool in use has no contiguous tables.
        self.places = np.random.default_rng(0).permutation(len(pool)).reshape(sequences, self.pages)

    def table(self, sequence: int) -> BlockTable:
        return BlockTable(tuple(self.places[sequence].tolist()))

    def prefill(self, prompts: Sequence[Sequence[int]], chunk: int) -> None:
        for i, prompt in enumerate(prompts):
            for start in range(0, len(prompt), chunk):
                part = tuple(prompt[start : start + chunk])
                self.engine.run([Slice(self.table(i), start, part)])

    def decode(self, batch: int, context: int) -> None:
        greedy = SamplingParams()
        self.engine.run([Slice(self.table(i), context, (7,), greedy) for i in range(batch)])


class Theirs:
    """transformers' model with its own cache and sdpa attention."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self.model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="sdpa"
        )

    def forward(self, ids: torch.Tensor, cache: DynamicCache, context: int) -> torch.Tensor:
        with torch.inference_mode():
            mask = torch.ones(len(ids), context + ids.shape[1], dtype=torch.int64)
            output: Any = self.model(
                input_ids=ids, attention_mask=mask, cache=cache, use_cache=True, logits_to_keep=1
            )
            best: torch.Tensor = output.logits[:, -1].argmax(-1)
            return best

    def prefill(self, prompts: Sequence[Sequence[int]]) -> DynamicCache:
        cache = DynamicCache(config=self.model.config)
        self.forward(torch.tensor(prompts), cache, 0)
        return cache

    def decode(self, batch: int, cache: DynamicCache) -> None:
        context = int(cache.get_seq_length())
        self.forward(torch.full((batch, 1), 7), cache, context)


def measure(options: argparse.Namespace, machine: Machine, ours: Ours, theirs: Theirs) -> list[Row]:
    draw, clock = np.random.default_rng(1), CLOCKS[options.clock]
    context, rows = options.context, []
    weights = list(ours.model.parameters())
    weight_bytes = sum(weight.nbytes for weight in weights)
    embedding: Any = ours.model.get_input_embeddings()
    vocabulary = embedding.weight.numel()
    products = sum(weight.numel() for weight in weights if weight.ndim > 1)
    if not ours.model.config.tie_word_embeddings:
        products -= vocabulary
    for batch in options.batches:
        prompts = draw.integers(0, VOCABULARY, (batch, context)).tolist()
        few = prompts[: options.prefills]
        times = best_of(
            options.repeat,
            clock,
            lambda few=few: ours.prefill(few, options.chunk),  # type: ignore[misc]
            lambda few=few: theirs.prefill(few),  # type: ignore[misc]
        )
        count = len(few) * context
        # The output matrix works on one row of a prefill only.
        floor = 2 * (products - vocabulary) * count / machine.flops
        rows.append(Row("prefill", len(few), count / times[0], count / times[1], count / floor))

        ours.prefill(prompts, options.chunk)
        cache = theirs.prefill(prompts)
        times = best_of(
            options.repeat * 4,
            clock,
            lambda batch=batch: ours.decode(batch, context),  # type: ignore[misc]
            lambda batch=batch, cache=cache: theirs.decode(batch, cache),  # type: ignore[misc]
        )
        floor = (weight_bytes + batch * context * ours.layout.token_bytes) / machine.bandwidth
        rows.append(Row("decode", batch, batch / times[0], batch / times[1], batch / floor))
    return rows


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="a Hugging Face folder; default: the embedded model")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default=default_dtype())
    parser.add_argument("--context", type=int, default=512, help="tokens")
    parser.add_argument("--chunk", type=int, default=512, help="tokens of one prefill pass")
    parser.add_argument(
        "--batches", type=lambda text: [int(part) for part in text.split(",")], default=[1, 8, 32]
    )
    parser.add_argument("--prefills", type=int, default=4, help="prompts of one prefill measurement at most")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--clock", choices=tuple(CLOCKS), default="wall", help="cpu: for one thread on a busy machine"
    )
    parser.add_argument("--json", type=Path, help="write the figures here too")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    folder = options.model or ensure(default_home(os.environ))
    dtype: torch.dtype = getattr(torch, options.dtype)
    ours = Ours(folder, options.dtype, options.threads, max(options.batches), options.context + 1)
    machine = measure_machine(dtype, CLOCKS[options.clock])
    rows = measure(options, machine, ours, Theirs(folder, dtype))

    print(f"{folder.name}, {options.dtype}, context {options.context}, {options.threads} threads, "
        f"{options.clock} clock, "
          f"attention {ours.engine.attention}")  # fmt: skip
    print(
        f"{platform.machine()}: reads {machine.bandwidth / 1e9:.1f} GB/s, "
        f"matrix product {machine.flops / 1e9:.0f} GFLOP/s"
    )
    print(
        f"\n{'':8} {'batch':>5} {'kvseal':>10} {'transformers':>13} {'floor':>10} {'ratio':>7} "
        f"{'of floor':>9}"
    )
    for row in rows:
        print(
            f"{row.phase:8} {row.batch:>5} {row.kvseal:>10,.1f} {row.transformers:>13,.1f} "
            f"{row.floor:>10,.1f} {row.kvseal / row.transformers:>7.2f} {row.kvseal / row.floor:>9.2f}"
        )
    if options.json:
        report = {
            "model": folder.name,
            "dtype": options.dtype,
            "context": options.context,
            "threads": options.threads,
            "clock": options.clock,
            "attention": ours.engine.attention,
            "bandwidth_bytes_s": machine.bandwidth,
            "flops_s": machine.flops,
            "rows_tokens_s": [row._asdict() for row in rows],
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
