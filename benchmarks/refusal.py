"""Refusing a prompt ten times over the limit, against tokenizing it.

    python benchmarks/refusal.py [--limit 8192] [--times 10] [--pairs 40] [--json out.json]

The two take turns (A B A B …); the ratio is the median over the pairs, with a 95 % bootstrap interval.

    count    Tokenizer.encode_prompt with the limit, which gives up
    refuse   all that the gateway does for the body: JSON, fields, counting, the refusal
    tokens   the library's fastest way to tokenize the same text, and nothing else

Texts: prose with spaces; source code; one without any space, in which words end only where the tokenizer
says so; and one endless word, which cannot be cut and is counted by its bytes. The bound to reach is 0.15
for the first two.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray

from kvseal.gateway.model_files import load_tokenizer
from kvseal.gateway.prepare import Serving, prepare_completion
from kvseal.gateway.refusals import Refused
from kvseal.gateway.tokenizer import TooLong
from kvseal.model import default_home, ensure


class Row(NamedTuple):
    """One line of the table; times in milliseconds (median), ratios with their interval."""

    text: str
    tokens: int
    tokens_ms: float
    count_ms: float
    refuse_ms: float
    count_ratio: tuple[float, float, float]
    refuse_ratio: tuple[float, float, float]


def texts(library: tokenizers.Tokenizer, tokens: int) -> dict[str, str]:
    """Each of about ``tokens`` tokens."""
    rng = np.random.default_rng(11)
    source = Path(str(argparse.__file__)).read_text()
    words = sorted({word for word in source.split() if word.isalpha()})
    prose = " ".join(rng.choice(words, 4000)).replace(" the ", ". The ")
    unspaced = "".join(rng.choice(list("天地玄黄宇宙洪荒日月盈昃辰宿列张"), 4000)).replace("月", "\uff0c")
    samples = {"prose": prose, "code": source[:40_000], "no spaces": unspaced, "one word": "ab" * 5000}
    return {
        name: sample * -(-tokens // len(library.encode(sample, add_special_tokens=False)))
        for name, sample in samples.items()
    }


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def interval(ratios: NDArray[np.float64]) -> tuple[float, float, float]:
    """Median, and the ends of its 95 % bootstrap interval."""
    draws = np.random.default_rng(5).choice(ratios, (2000, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return float(np.median(ratios)), float(low), float(high)


def measure(folder: Path, limit: int, times: int, pairs: int) -> list[Row]:
    """One row for each text."""
    ours = load_tokenizer(folder)
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    serving = Serving("model", limit, 1024)
    rows = []
    for name, text in texts(library, limit * times).items():
        body = json.dumps({"model": "model", "prompt": text}, ensure_ascii=False).encode()

        def count(text: str = text) -> None:
            got = ours.encode_prompt(text, limit)
            assert isinstance(got, TooLong) or len(got) > limit

        def refuse(body: bytes = body) -> None:
            try:
                prepare_completion(body, ours, serving)
            except Refused:
                return
            raise AssertionError("it was not refused")

        def tokenize(text: str = text) -> None:
            _ = library.encode_batch_fast([text], add_special_tokens=False)[0].ids

        ways = (count, tokenize, refuse, tokenize)
        table = np.array([[seconds(way) for way in ways] for _ in range(pairs + 2)][2:])
        median_ms = [statistics.median(column) * 1e3 for column in table.T]
        rows.append(
            Row(
                name,
                len(library.encode(text, add_special_tokens=False)),
                median_ms[1],
                median_ms[0],
                median_ms[2],
                interval(table[:, 0] / table[:, 1]),
                interval(table[:, 2] / table[:, 3]),
            )
        )
    return rows


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    with open("/proc/cpuinfo") as lines:
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "?")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "tokenizers": tokenizers.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=int, default=8192, help="tokens")
    parser.add_argument("--times", type=int, default=10, help="how far the prompt is over the limit")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measure(ensure(default_home(os.environ)), options.limit, options.times, options.pairs)
    where = machine()
    print(", ".join(f"{name} {value}" for name, value in where.items()))
    print(f"{'text':<10} {'tokens':>8} {'tokens ms':>10} {'count ms':>9} {'refuse ms':>10}   ratios")
    for row in rows:
        ratios = "   ".join(
            f"{name} {middle:.3f} [{low:.3f}, {high:.3f}]"
            for name, (middle, low, high) in (("count", row.count_ratio), ("refuse", row.refuse_ratio))
        )
        print(
            f"{row.text:<10} {row.tokens:>8} {row.tokens_ms:>10.1f} {row.count_ms:>9.1f} "
            f"{row.refuse_ms:>10.1f}   {ratios}"
        )
    if options.json:
        options.json.write_text(json.dumps({"machine": where, "rows": [row._asdict() for row in rows]}))


if __name__ == "__main__":
    main()
