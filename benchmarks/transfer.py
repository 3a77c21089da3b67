"""Pull and verify through a transport, against a plain copy of the same bytes.

    python benchmarks/transfer.py [--pages 1,100,10000] [--page-kib 64,360] [--pairs 30] [--json out.json]

Two processes: the source exports a sealed pool, this one pulls it, page by page in random order. The ways
take turns, A B C A B C …, so that whatever else the machine does hits all of them:

    copy   one memcpy of as many bytes, private memory to private memory: numpy.copyto
    batch  pull + verify: one read of all pages, one native call; then every page's seal is taken and compared
    parts  pull + verify: reads of at most --part-mib; the seals of each are taken after its DONE, while the
           transport's thread copies the next one
    seal   no transfer: only the seals of the landed pages

Ratios are speeds relative to `copy`, medians over the rounds, with a 95 % bootstrap interval of the median.
`floor` is what one thread could reach at best: a copy, and one digest at the speed that it has on 1 MiB in
cache. No digest is taken before its read is DONE (G5). Pages are taken in turn from a pool of at least 128
MiB, since what is pulled in service is in nobody's cache. Small cases are repeated within a round; in them
the hand-over between threads is most of the time.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from kvseal.core.ids import InstanceId, PageId, Seal
from kvseal.core.pulls import Outcome
from kvseal.core.seals import seal_of
from kvseal.memory import BACKEND, PrivatePool, SourcePool
from kvseal.transport import ShmTransport

SECRET = bytes(range(32))
SOURCE, READER = InstanceId(b"bench-source----"), InstanceId(b"bench-reader----")
MAX_BYTES = 512 << 20
ROUND_BYTES = 16 << 20  # smaller cases are repeated within a round until they moved this much
POOL_BYTES = 128 << 20  # at least: several times the cache
WAYS = ("copy", "batch", "parts", "seal")


class Case(NamedTuple):
    """How many pages are pulled at a time

    and how many of them by one read where they are pulled in parts.
    """

    pages: int
    part_pages: int


class Row(NamedTuple):
    """One case. Speeds in GB/s, medians; ratios to `copy` with the ends of their intervals."""

    page_bytes: int
    pages: int
    repeats: int
    copy: float
    batch: float
    parts: float
    seal: float
    batch_ratio: tuple[float, float, float]
    parts_ratio: tuple[float, float, float]
    floor: float


def page_ids(pages: int) -> list[PageId]:
    """Made-up names; both processes make the same ones."""
    return [PageId(number.to_bytes(16, "little")) for number in range(pages)]


def seals_of(array: NDArray[np.uint8], ids: list[PageId]) -> list[Seal]:
    """What a manifest would say about the pages."""
    return [seal_of(array[page], identity) for page, identity in enumerate(ids)]


# --- the other process ------------------------------------------------------------------------------------


def serve(directory: Path, pages: int, page_bytes: int) -> None:
    """Exports a pool of random bytes, says where and with which seals, and waits until stdin closes."""
    pool = SourcePool.create(pages, page_bytes)
    generator = np.random.default_rng(7)
    for page in pool.array:
        page[:] = np.frombuffer(generator.bytes(page_bytes), np.uint8)
    transport = ShmTransport(SECRET, SOURCE, lambda: None, directory)
    transport.register(pool)
    seals = [seal.hex() for seal in seals_of(pool.array, page_ids(pages))]
    print(json.dumps({"endpoint": transport.describe().hex(), "seals": seals}), flush=True)
    sys.stdin.read()
    transport.close()


@contextmanager
def source(directory: Path, pages: int, page_bytes: int) -> Iterator[tuple[bytes, list[Seal]]]:
    """Endpoint and seals of a source in a process of its own."""
    command = [sys.executable, __file__, "--serve", str(directory), str(pages), str(page_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        answer = json.loads(process.stdout.readline())
        yield bytes.fromhex(answer["endpoint"]), [Seal(bytes.fromhex(seal)) for seal in answer["seals"]]


# --- the ways ---------------------------------------------------------------------------------------------


class Pull:
    """A reader that pulls `pages` pages at a time, through the whole pool in turn, and verifies them."""

    def __init__(self, directory: Path, seals: list[Seal], page_bytes: int, case: Case) -> None:
        pool_pages = len(seals)
        self.case = case
        self.order = np.random.default_rng(11).permutation(
            pool_pages
        )  # landing page i gets source page order[i]
        self.places = np.arange(pool_pages)
        ids = page_ids(pool_pages)
        self.expected = [(ids[page], seals[page]) for page in self.order]  # by landing page
        self.landing = PrivatePool.create(pool_pages, page_bytes)
        self.landing.array[:] = 0
        self.turn = itertools.cycle(range(0, pool_pages - case.pages + 1, case.pages))
        self.woken = threading.Event()
        self.transport = ShmTransport(SECRET, READER, self.woken.set, directory)
        self.transport.register_landing(self.landing)

    def batch(self) -> None:
        """One read, then all seals."""
        self._pull(self.case.pages)

    def parts(self) -> None:
        """Several reads in flight, each verified after its own DONE."""
        self._pull(self.case.part_pages)

    def seals(self) -> None:
        """Of what landed before."""
        self.verify(next(self.turn), self.case.pages)

    def verify(self, first: int, pages: int) -> None:
        """Takes the seals of landed pages and compares them."""
        array = self.landing.array
        for page in range(first, first + pages):
            identity, seal = self.expected[page]
            if seal_of(array[page], identity) != seal:
                raise AssertionError(f"page {page} does not have its seal")

    def _pull(self, pages_each: int) -> None:
        first = next(self.turn)
        end = first + self.case.pages
        left = 0
        for start in range(first, end, pages_each):
            part = slice(start, min(start + pages_each, end))
            self.transport.read(SOURCE, start, self.order[part], self.places[part])
            left += 1
        while left:
            self.woken.wait()
            self.woken.clear()
            for ended in self.transport.poll():
                if ended.outcome is not Outcome.DONE:
                    raise AssertionError(ended.detail)
                self.verify(ended.transfer, min(pages_each, end - ended.transfer))
                left -= 1


# --- measuring --------------------------------------------------------------------------------------------


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Of one round."""
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    return time.perf_counter() - began


def interval(ratios: NDArray[np.float64]) -> tuple[float, float, float]:
    """Median, and the ends of its 95 % bootstrap interval."""
    draws = np.random.default_rng(5).choice(ratios, (2000, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return float(np.median(ratios)), float(low), float(high)


def digest_in_cache() -> float:
    """Bytes per second of xxh3-128 on 1 MiB that was just touched."""
    block = np.random.default_rng(3).integers(0, 256, 1 << 20, np.uint8)
    times = [seconds(lambda: xxhash.xxh3_128_digest(block.data, 7), 8) / 8 for _ in range(50)]
    return float(block.nbytes / statistics.median(times))


def measure(page_bytes: int, case: Case, rounds: int) -> Row:
    """One case, in both processes."""
    total = page_bytes * case.pages
    repeats = max(1, ROUND_BYTES // total)
    pool_pages = -(-max(POOL_BYTES, total) // total) * case.pages
    with tempfile.TemporaryDirectory(prefix="kvseal-") as folder:
        directory = Path(folder)
        with source(directory, pool_pages, page_bytes) as (endpoint, seals):
            pull = Pull(directory, seals, page_bytes, case)
            pull.transport.connect(SOURCE, endpoint)
            times = take_turns(pull, total, rounds, repeats)
            counters = pull.transport.counters()
            pull.transport.close()
    passes = len(seals) // case.pages  # of the warm-up, which touches the whole pool
    assert counters.bytes == 2 * total * (passes + rounds * repeats), "the transport moved all of it"
    copy_seconds = float(np.median(times["copy"]))
    return Row(
        page_bytes=page_bytes,
        pages=case.pages,
        repeats=repeats,
        **{name: float(total / 1e9 / np.median(values)) for name, values in times.items()},
        batch_ratio=interval(times["copy"] / times["batch"]),
        parts_ratio=interval(times["copy"] / times["parts"]),
        floor=copy_seconds / (copy_seconds + total / digest_in_cache()),
    )


def take_turns(pull: Pull, total: int, rounds: int, repeats: int) -> dict[str, NDArray[np.float64]]:
    """Seconds of each way, one figure per round."""
    pool_bytes = pull.landing.array.nbytes
    origin, copy = (np.ones(pool_bytes, np.uint8) for _ in range(2))
    turn = itertools.cycle(range(0, pool_bytes, total))

    def plain_copy() -> None:
        first = next(turn)
        np.copyto(copy[first : first + total], origin[first : first + total])

    ways: dict[str, Callable[[], object]] = {
        "copy": plain_copy,
        "batch": pull.batch,
        "parts": pull.parts,
        "seal": pull.seals,
    }
    for way in ways.values():
        seconds(way, pool_bytes // total)  # touches every page once, unmeasured
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _, (name, way) in itertools.product(range(rounds), ways.items()):
        taken[name].append(seconds(way, repeats) / repeats)
    return {name: np.array(values) for name, values in taken.items()}


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    model = "unknown processor"
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "xxhash": xxhash.VERSION,
        "copies": BACKEND,
        "load": os.getloadavg()[0],
    }


def shown(ratio: tuple[float, float, float]) -> str:
    """For the table."""
    return f"{ratio[0]:5.2f} [{ratio[1]:.2f}, {ratio[2]:.2f}]"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="Pull and verify through shm, against a plain copy.")
    parser.add_argument(
        "--page-kib", default="16,64,256,360,1024", help="360 KiB: 16 tokens of SmolLM2 in bf16"
    )
    parser.add_argument("--pages", default="1,10,100,1000,10000")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--part-mib", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    here = machine()
    print(", ".join(f"{name} {value}" for name, value in here.items()))
    print(f"{options.pairs} rounds; GB/s; ratio to copy [95 % interval]")
    print(f"{'page':>9} {'pages':>6} {'copy':>6} {'batch':>6} {'parts':>6} {'seal':>6}", end="")
    print(f"  {'batch / copy':<19} {'parts / copy':<19} floor")
    rows: list[Row] = []
    for kib, pages in itertools.product(options.page_kib.split(","), options.pages.split(",")):
        page_bytes = int(kib) << 10
        if page_bytes * int(pages) > MAX_BYTES:
            continue
        case = Case(int(pages), max(1, (options.part_mib << 20) // page_bytes))
        row = measure(page_bytes, case, options.pairs)
        rows.append(row)
        speeds = " ".join(f"{getattr(row, name):6.1f}" for name in WAYS)
        print(f"{kib:>5} KiB {pages:>6} {speeds}", end="")
        print(f"  {shown(row.batch_ratio):<19} {shown(row.parts_ratio):<19} {row.floor:.2f}", flush=True)
    if options.json:
        options.json.write_text(
            json.dumps({"machine": here, "rows": [row._asdict() for row in rows]}, indent=2)
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
