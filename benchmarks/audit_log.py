"""One gigabyte of log through `kvseal audit`: time and peak memory.

    .venv/bin/python benchmarks/audit_log.py [--mib 1024] [--gzip]

The log is made on the fly: the start of an SGLang prefill server, then run-time lines as it writes them,
with a rejected prompt and a failed transfer now and then. It is read by a process of its own, whose peak
resident memory the kernel counts.
"""

import argparse
import gzip
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from io import BufferedWriter
from pathlib import Path

START = (
    "[2026-08-27 09:58:12] server_args=ServerArgs(model_path='zai-org/GLM-5.3', tokenizer_mode='auto', "
    "host='10.0.3.11', port=30000, context_length=1048576, tp_size=8, disaggregation_mode='prefill', "
    "disaggregation_transfer_backend='mooncake')\n"
    "[2026-08-27 10:03:55 TP0] max_total_num_tokens=681280, chunked_prefill_size=16384, "
    "max_prefill_tokens=16384, max_running_requests=256, context_len=1048576, available_gpu_mem=9.87 GB\n"
)
LIMIT_S, LIMIT_MB = 30, 200


def block(seed: int) -> bytes:
    """About four megabytes of run-time lines."""
    rng = random.Random(seed)
    lines = []
    for number in range(26_000):
        at = f"2026-08-27 {10 + number // 3600 % 12:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
        load = f"#new-token: {rng.randrange(16384)}, #cached-token: {rng.randrange(9000)}"
        lines.append(
            f"[{at} TP0] Prefill batch, #new-seq: {rng.randrange(1, 8)}, {load}, "
            f"token usage: {rng.random():.2f}, #running-req: 0, #queue-req: 0"
        )
        if number % 2_000 == 0:
            lines.append(
                f"[{at} TP0] Input length (702113 tokens) exceeds the maximum allowed length (681274 "
                f"tokens). Use a shorter input., self.rid='{rng.getrandbits(64):x}'"
            )
        if number % 500 == 0:
            lines.append(f"[{at} TP0] Prefill transfer failed for request rank=0 req.rid='{number}'")
    return ("\n".join(lines) + "\n").encode()


def write(target: gzip.GzipFile | BufferedWriter, size: int) -> int:
    blocks = [block(seed) for seed in range(4)]
    written = target.write(START.encode())
    while written < size:
        written += target.write(blocks[written % len(blocks)])
    return written


def measure(path: Path) -> tuple[float, float, dict[str, object]]:
    """Seconds, peak resident megabytes, and the report."""
    program = "import sys; from kvseal.cli import main; sys.argv[0] = 'kvseal'; main()"
    options = ["--log", str(path), "--engine-version", "sglang==0.5.20", "--json"]
    command = [sys.executable, "-c", program, "audit", *options]
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        assert os.waitstatus_to_exitcode(status) == 1, "the log holds a finding"
        output.seek(0)
        report = json.load(output)
    return seconds, usage.ru_maxrss / 1000, report


def main() -> None:
    parser = argparse.ArgumentParser(description="A gigabyte of log through the auditor.")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--gzip", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("prefill.log.gz" if options.gzip else "prefill.log")
        with path.open("wb") as raw:
            packer = gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1) if options.gzip else None
            size = write(packer or raw, options.mib << 20)
            if packer is not None:
                packer.close()
        seconds, megabytes, report = measure(path)
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {os.cpu_count()} cores, Python {platform.python_version()}")
    packed = " (gzip)" if options.gzip else ""
    speed = size / seconds / 1e6
    print(f"{size / 1e9:.2f} GB{packed}: {seconds:.1f} s, {speed:.0f} MB/s, peak {megabytes:.0f} MB")
    print(f"verdict {report['verdict']}; limits: {LIMIT_S} s and {LIMIT_MB} MB a gigabyte")
    if seconds > LIMIT_S * size / 1e9 or megabytes > LIMIT_MB:
        raise SystemExit("too slow or too large")


if __name__ == "__main__":
    main()
