"""The control wire between two processes, beside bare asyncio echoes over a unix socket with the same bytes.

    python benchmarks/wire.py [--rounds 30] [--json out.json]

Three servers live in one child process: kvseal's wire, asyncio streams with the same codec (`readexactly` of
length and body), and a bare asyncio protocol that writes back whatever came, without a look at it: the floor.
A round measures each of them in turn, so that others who use the machine disturb all alike.

    ping-pong   one message of 16 tokens to and fro, one in flight: microseconds per round trip, median
    stream      4,096 such messages at once, echoed: messages per second
    prompt      one prompt of a million tokens there, one small message back: milliseconds
"""

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from kvseal.core.ids import InstanceId, RequestId, TenantId
from kvseal.core.messages import Generate, Hello, Tokens, decode, encode
from kvseal.core.sampling import SamplingParams
from kvseal.wire import Connection, connect, make_secret, read_secret_fd, secret_descriptor, serve
from kvseal.wire.framing import encode_frame

PINGS = 300
BURST = 4096
PROMPT_TOKENS = 1_000_000
ME = Hello(role="decode", instance=InstanceId(bytes(16)))
SMALL = Tokens(request=RequestId("0123456789abcdef"), attempt=0, index=512, tokens=tuple(range(1000, 1016)))
PROMPT = Generate(
    request=RequestId("0123456789abcdef"),
    tenant=TenantId("tenant"),
    prompt=tuple(index % 150_000 for index in range(PROMPT_TOKENS)),
    max_tokens=1,
    sampling=SamplingParams(),
)
LIMIT = 2**26
SMALL_FRAME = encode_frame(encode(SMALL), LIMIT)
PROMPT_FRAME_BYTES = len(encode_frame(encode(PROMPT), LIMIT))


class Figures(NamedTuple):
    """One round of one arm."""

    ping_us: float
    burst_per_s: float
    prompt_ms: float


# --- the child: three servers ------------------------------------------------------------------------------


class Echo(asyncio.Protocol):
    """Writes back what comes."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Swallow(Echo):
    """Writes something small back whenever a whole prompt has come."""

    def __init__(self) -> None:
        super().__init__()
        self._came = 0

    def data_received(self, data: bytes) -> None:
        self._came += len(data)
        if self._came == PROMPT_FRAME_BYTES:
            self._came = 0
            self._transport.write(SMALL_FRAME)


async def echo_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            header = await reader.readexactly(4)
            body = await reader.readexactly(int.from_bytes(header, "big"))
            message = decode(body)
            writer.write(encode_frame(encode(SMALL if isinstance(message, Generate) else message), LIMIT))
    except asyncio.IncompleteReadError:
        writer.close()


async def echo_wire(connection: Connection) -> None:
    while True:
        message = await connection.receive()
        connection.send(SMALL if isinstance(message, Generate) else message)


async def child(directory: str, secret: bytes) -> None:
    await serve(f"unix:{directory}/kvseal", lambda: ME, secret, echo_wire)
    await asyncio.start_unix_server(echo_stream, f"{directory}/streams", limit=2**23)
    loop = asyncio.get_running_loop()
    await loop.create_unix_server(Echo, f"{directory}/protocol")
    await loop.create_unix_server(Swallow, f"{directory}/swallow")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


# --- the arms ----------------------------------------------------------------------------------------------


class Arm(NamedTuple):
    """Sends some small messages and waits for their echoes; sends the prompt and waits for the answer."""

    name: str
    small: Callable[[int], Awaitable[None]]
    prompt: Callable[[], Awaitable[None]]


async def wire_arm(directory: str, secret: bytes) -> Arm:
    connection = await connect(f"unix:{directory}/kvseal", ME, secret)

    async def small(count: int) -> None:
        for _ in range(count):
            connection.send(SMALL)
        for _ in range(count):
            await connection.receive()

    async def prompt() -> None:
        connection.send(PROMPT)
        await connection.receive()

    return Arm("kvseal wire", small, prompt)


async def streams_arm(directory: str) -> Arm:
    reader, writer = await asyncio.open_unix_connection(f"{directory}/streams")

    async def small(count: int) -> None:
        for _ in range(count):
            writer.write(encode_frame(encode(SMALL), LIMIT))
        for _ in range(count):
            header = await reader.readexactly(4)
            decode(await reader.readexactly(int.from_bytes(header, "big")))

    async def prompt() -> None:
        writer.write(encode_frame(encode(PROMPT), LIMIT))
        decode((await reader.readexactly(len(SMALL_FRAME)))[4:])

    return Arm("asyncio streams", small, prompt)


class Counting(asyncio.Protocol):
    """Tells when so many bytes have come."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._missing = 0
        self._complete: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._missing -= len(data)
        if self._missing == 0 and self._complete is not None:
            self._complete.set_result(None)

    def expect(self, count: int) -> asyncio.Future[None]:
        self._missing = count
        self._complete = asyncio.get_running_loop().create_future()
        return self._complete


async def protocol_arm(directory: str) -> Arm:
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_unix_connection(Counting, f"{directory}/protocol")
    _, swallow = await loop.create_unix_connection(Counting, f"{directory}/swallow")

    async def small(count: int) -> None:
        complete = protocol.expect(count * len(SMALL_FRAME))
        protocol.transport.write(SMALL_FRAME * count)
        await complete

    async def prompt() -> None:
        complete = swallow.expect(len(SMALL_FRAME))
        swallow.transport.write(encode_frame(encode(PROMPT), LIMIT))
        await complete

    return Arm("asyncio protocol", small, prompt)


# --- measuring ---------------------------------------------------------------------------------------------


async def measure(arm: Arm) -> Figures:
    pings = []
    for _ in range(PINGS):
        began = time.perf_counter()
        await arm.small(1)
        pings.append(time.perf_counter() - began)
    began = time.perf_counter()
    await arm.small(BURST)
    burst = BURST / (time.perf_counter() - began)
    began = time.perf_counter()
    await arm.prompt()
    return Figures(statistics.median(pings) * 1e6, burst, (time.perf_counter() - began) * 1e3)


async def rounds(directory: str, secret: bytes, count: int) -> dict[str, list[Figures]]:
    arms = [await wire_arm(directory, secret), await streams_arm(directory), await protocol_arm(directory)]
    for arm in arms:
        await measure(arm)  # warm
    results: dict[str, list[Figures]] = {arm.name: [] for arm in arms}
    for turn in range(count):
        for arm in arms if turn % 2 else reversed(arms):
            results[arm.name].append(await measure(arm))
    return results


def ratio(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """Median of the pairwise ratios, with a 95 % bootstrap interval."""
    pairs, rng = [a / b for a, b in zip(ours, theirs, strict=True)], random.Random(0)
    medians = sorted(statistics.median(rng.choices(pairs, k=len(pairs))) for _ in range(2000))
    return statistics.median(pairs), medians[50], medians[1950]


def report(results: dict[str, list[Figures]], path: Path | None) -> None:
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    print(f"a small message has {len(SMALL_FRAME)} bytes, the prompt {PROMPT_FRAME_BYTES:,}")
    print(f"{'':18}{'ping-pong µs':>14}{'stream msg/s':>14}{'prompt ms':>12}")
    medians = {
        name: Figures(*(statistics.median(column) for column in zip(*figures, strict=True)))
        for name, figures in results.items()
    }
    for name, figures in medians.items():
        print(f"{name:18}{figures.ping_us:14.1f}{figures.burst_per_s:14,.0f}{figures.prompt_ms:12.1f}")
    ours, *others = results
    for other in others:
        for field in Figures._fields:
            columns = [[getattr(figures, field) for figures in results[name]] for name in (ours, other)]
            middle, low, high = ratio(columns[0], columns[1])
            print(f"{ours} / {other}, {field}: {middle:.2f} ({low:.2f} to {high:.2f})")
    if path is not None:
        path.write_text(json.dumps({name: figures._asdict() for name, figures in medians.items()}, indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=2, metavar=("DIRECTORY", "SECRET_FD"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        asyncio.run(child(options.child[0], read_secret_fd(int(options.child[1]))))
        return
    secret = make_secret()
    descriptor = secret_descriptor(secret)
    with tempfile.TemporaryDirectory(prefix="kvs-") as directory:
        arguments = [sys.executable, __file__, "--child", directory, str(descriptor)]
        server = subprocess.Popen(arguments, pass_fds=[descriptor], stdout=subprocess.PIPE)
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            report(asyncio.run(rounds(directory, secret, options.rounds)), options.json)
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
