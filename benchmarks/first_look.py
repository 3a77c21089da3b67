"""What a newcomer meets: seconds to the start table, time to first token and tokens/s of one and eight
clients, memory.

    .venv/bin/python benchmarks/first_look.py [--json] [--dtype bfloat16]

Through `kvseal serve` and HTTP, streaming, all guards on. Single runs: trust ratios, not digits.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

PROMPT = " ".join(
    ["The harbour was quiet before sunrise, and only the gulls were awake."] * 35
)  # about 500 tokens
ANSWER_TOKENS = 128


def one_client(url: str, model: str, found: list[tuple[float, float, int]], number: int) -> None:
    """Time to first token, time of the whole answer, tokens of it."""
    body = {
        "model": model,
        "prompt": f"{number}: {PROMPT}",
        "max_tokens": ANSWER_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    began = time.perf_counter()
    first = None
    tokens = 0
    with httpx.Client(timeout=600) as http, http.stream("POST", f"{url}/v1/completions", json=body) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                first = first or time.perf_counter()
                usage = json.loads(line[6:]).get("usage")
                tokens = usage["completion_tokens"] if usage else tokens
    assert first is not None
    assert tokens == ANSWER_TOKENS
    found.append((first - began, time.perf_counter() - began, tokens))


def clients(url: str, model: str, count: int) -> dict[str, float]:
    """``count`` clients at once."""
    found: list[tuple[float, float, int]] = []
    threads = [threading.Thread(target=one_client, args=(url, model, found, i)) for i in range(count)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_s = time.perf_counter() - began
    return {
        "clients": count,
        "ttft_median_s": statistics.median(ttft for ttft, _, _ in found),
        "output_tokens_per_s": sum(tokens for _, _, tokens in found) / wall_s,
    }


def memory(pid: int) -> list[dict[str, Any]]:
    """Private memory of each process in MB; pages of pools that were touched are in it."""
    rows = []
    for child in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        words = child.cmdline()
        name = Path(words[words.index("--settings") + 1]).stem if "--settings" in words else "supervisor"
        found = child.memory_full_info()
        rows.append({"process": name, "uss_mb": round(found.uss / 1e6), "rss_mb": round(found.rss / 1e6)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    arguments = parser.parse_args()
    command = [
        sys.executable,
        "-m",
        "kvseal.cli",
        "serve",
        "--json",
        "--port",
        "0",
        "--dtype",
        arguments.dtype,
    ]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        table = json.loads(server.stdout.readline())
        result: dict[str, Any] = {"start_s": time.perf_counter() - began, "dtype": arguments.dtype}
        model = table["model"].split(" ")[0]
        result["memory_at_start"] = memory(server.pid)
        clients(table["url"], model, 1)  # warm
        result["runs"] = [clients(table["url"], model, count) for count in (1, 8)]
        result["memory_after"] = memory(server.pid)
        server.terminate()
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{arguments.dtype}, {psutil.cpu_count()} cores: ready after {result['start_s']:.1f} s")
    for run in result["runs"]:
        speed = f"first token {run['ttft_median_s']:.2f} s, {run['output_tokens_per_s']:.0f} tokens/s"
        print(f"{run['clients']} clients: {speed}")
    for before, after in zip(result["memory_at_start"], result["memory_after"], strict=True):
        print(
            f"{before['process']:<12} private {before['uss_mb']:>5} MB at start, {after['uss_mb']:>5} later"
        )


if __name__ == "__main__":
    main()
