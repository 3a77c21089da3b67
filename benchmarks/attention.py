"""Attention of one layer, in µs: native against gather + SDPA against the time to read the same bytes once.

    python benchmarks/attention.py [--dtype float32] [--page-size 16] [--json FILE]

One thread, by its processor time, so that other work on the machine counts less; kernels take turns,
medians. Every pass takes another layer of a pool much larger than the caches. The floor is keys and values
over the speed of a sequential read, measured in the same turns. A chunk's floor is arithmetic, not bytes, so
it has none here.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from kvseal.core.batch import Slice
from kvseal.core.leases import BlockTable
from kvseal.engine import AttentionKernel, SdpaGather, StepAttention, choose_kernel
from kvseal.engine.packing import Limits, PackedBatch, pack
from kvseal.layout import Layout, Segment, item_bytes
from kvseal.memory import PrivatePool

KV_HEADS, GROUP, HEAD_DIM = 3, 3, 64  # the embedded model's
DECODES = [(batch, context) for context in (512, 2048) for batch in (1, 8, 32)]
CHUNKS = [(0, 512), (2048, 512)]
READ_BYTES = 256 << 20


def layout_of(kernel: type[AttentionKernel], dtype: str, page_size: int, layers: int) -> Layout:
    segment = Segment("kv", tuple(range(layers)), (2, KV_HEADS, HEAD_DIM), dtype)
    sizes = {"page_size": page_size, "layers": layers, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM}
    return Layout(
        "gqa", bytes(16), dtype=dtype, rope="{}", inner_order=kernel.inner_order, segments=(segment,), **sizes
    )


def pack_shuffled(cases: Sequence[tuple[int, int]], page_size: int) -> tuple[int, PackedBatch]:
    """Sequences of (start, count) in shuffled pages, as in a pool that is in use; the pages and the batch."""
    sizes = [-(-(start + count) // page_size) for start, count in cases]
    free = np.random.default_rng(0).permutation(sum(sizes)).tolist()
    slices = [
        Slice(BlockTable(tuple(free.pop() for _ in range(size))), start, tuple(range(count)))
        for (start, count), size in zip(cases, sizes, strict=True)
    ]
    return sum(sizes), pack(slices, Limits(sum(sizes), page_size, 1 << 20))


def seconds(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def measure(name: str, cases: Sequence[tuple[int, int]], options: argparse.Namespace) -> dict[str, object]:
    kernels = [choose_kernel("auto", HEAD_DIM, options.dtype), SdpaGather]
    pages, batch = pack_shuffled(cases, options.page_size)
    token_bytes = KV_HEADS * HEAD_DIM * 2 * item_bytes(options.dtype)
    layers = max(2, min(30, (2 << 30) // (pages * options.page_size * token_bytes)))
    kind: torch.dtype = getattr(torch, options.dtype)
    pool = PrivatePool.create(pages, token_bytes * options.page_size * layers)
    numbers = torch.from_numpy(pool.array)
    numbers.view(kind).fill_(0.25)
    rows = batch.ids.shape[1]
    query = torch.randn(1, rows, KV_HEADS * GROUP, HEAD_DIM).to(kind).transpose(1, 2)
    key, value = torch.randn(2, 1, KV_HEADS, rows, HEAD_DIM).to(kind)
    steps: dict[str, StepAttention] = {
        kernel.name: kernel(layout_of(kernel, options.dtype, options.page_size, layers), numbers).prepare(
            batch
        )
        for kernel in kernels
    }
    block = torch.ones(READ_BYTES // 4)
    times: dict[str, list[float]] = {name: [] for name in steps}
    reads: list[float] = []
    count = layers if rows <= 64 else 2
    for _ in range(options.repeat):
        reads.append(seconds(block.sum) / READ_BYTES)
        for label, step in steps.items():
            spent = seconds(
                lambda step=step: [step.attend(i, query, key, value, 0.125) for i in range(count)]
            )  # type: ignore[misc]
            times[label].append(spent / count * 1e6)
    tokens = sum(start + new for start, new in cases)
    native, gather = (statistics.median(times[kernel.name]) for kernel in kernels)
    floor = tokens * token_bytes * statistics.median(reads) * 1e6 if rows == len(cases) else None
    return {
        "case": name,
        "kernel": kernels[0].name,
        "native_us": native,
        "gather_us": gather,
        "floor_us": floor,
        "of_floor": None if floor is None else native / floor,
        "gbytes_s": 1e-9 / statistics.median(reads),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    print(f"{platform.machine()}, {options.dtype}, pages of {options.page_size}, one thread, µs per layer\n")
    print(
        f"{'':24} {'native':>9} {'gather':>9} {'speed-up':>9} {'floor':>8} {'of floor':>9} {'read GB/s':>10}"
    )
    rows = []
    work = [(f"decode {batch} × {context}", [(context - 1, 1)] * batch) for batch, context in DECODES]
    work += [(f"chunk {count} after {start}", [(start, count)]) for start, count in CHUNKS]
    for name, cases in work:
        row = measure(name, cases, options)
        columns = ("native_us", "gather_us", "floor_us")
        native, gather, floor = (float(row[column] or 0) for column in columns)  # type: ignore[arg-type]
        shown = f"{floor:>8,.0f} {native / floor:>9.2f}" if floor else f"{'':>8} {'':>9}"
        print(
            f"{name:24} {native:>9,.0f} {gather:>9,.0f} {gather / native:>9.1f} {shown} "
            f"{row['gbytes_s']:>10.1f}"
        )
        rows.append(row)
    if options.json:
        options.json.write_text(
            json.dumps({"dtype": options.dtype, "page_size": options.page_size, "rows": rows}, indent=2)
            + "\n"
        )


if __name__ == "__main__":
    main()
