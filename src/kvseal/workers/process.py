"""One worker process, from its start to its end."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import asdict

import msgspec

from kvseal.core.errors import ProtocolError
from kvseal.core.ids import InstanceId, short
from kvseal.core.messages import Heartbeat, Unwelcome
from kvseal.process import SettingsUnreadable, WorkerProcess
from kvseal.process.life import (
    EXIT_REFUSED,
    EXIT_RESTART,
    end_on_bugs,
    leave,
    live,
    on_signals,
)
from kvseal.transport import ShmTransport, Transport, TransportError
from kvseal.wire import Connection, ConnectionLost, backoff, connect, dial_forever, read_secret_fd
from kvseal.workers.decode import DecodeWorker
from kvseal.workers.machine import Machine, build
from kvseal.workers.prefill import PrefillWorker

_log = logging.getLogger(__name__)
_JOIN_DELAYS_S = backoff(0.05, 0.5)
Worker = PrefillWorker | DecodeWorker
Wakeup = Callable[[], None]
Wrap = Callable[[Callable[[Wakeup], Transport], Wakeup], Transport]


def plain(make: Callable[[Wakeup], Transport], wakeup: Wakeup) -> Transport:
    """The transport as it is. The lab wraps faults around it."""
    return make(wakeup)


def refuse_faults(settings: WorkerProcess) -> Wrap:
    """What a worker that serves prepares: nothing, and it knows no faults."""
    if settings.faults:
        raise SettingsUnreadable("a worker that serves has no faults: only the lab's builds do")
    return plain


async def join(worker: Worker, machine: Machine, address: str, secret: bytes) -> None:
    """Be a worker of the gateway at ``address`` for as long as this process lives."""

    async def attend(connection: Connection, _previous: InstanceId | None) -> None:
        worker.shell.peers[connection.peer.instance] = connection
        try:
            while True:
                message = await connection.receive()
                if isinstance(message, Unwelcome):
                    _log.error("the gateway refuses this worker: %s", message.reason)
                    leave(EXIT_REFUSED)
                worker.on_gateway_message(connection, message)
        finally:
            worker.shell.peers.pop(connection.peer.instance, None)
            worker.on_gateway_lost(connection)

    def failed(error: ConnectionLost | ProtocolError) -> None:
        _log.info("gateway at %s: %s", address, error)

    await dial_forever(lambda: connect(address, machine.hello, secret), attend, _JOIN_DELAYS_S, failed)


async def run(settings: WorkerProcess, secret: bytes, wrap: Wrap) -> int:
    """One worker, until it is told to stop; the exit status."""
    loop = asyncio.get_running_loop()
    instance = InstanceId(os.urandom(16))
    wake: list[Callable[[], None]] = [lambda: None]

    def wakeup() -> None:
        loop.call_soon_threadsafe(wake[0])

    transport = wrap(
        lambda wake_up: ShmTransport(secret, instance, wake_up, settings.run_dir),
        wakeup,
    )
    address = f"unix:{settings.run_dir / f'{settings.role}-{short(instance)}.sock'}"
    machine = await asyncio.to_thread(build, settings, instance, transport, address)
    worker: Worker
    listener = None
    if settings.role == "prefill":
        worker = PrefillWorker(settings, secret, machine)
        listener = await worker.listen()
    else:
        worker = DecodeWorker(settings, secret, machine, transport)
        wake[0] = worker.poll_transport
    shell = worker.shell
    on_signals(loop, shell.stopping)
    broken = end_on_bugs(loop, shell.stopping)

    def beat(heartbeat: Heartbeat) -> None:
        moved = {f"transport_{name}": count for name, count in asdict(transport.counters()).items()}
        counted = heartbeat.counters | moved | {"forward_tokens": shell.forward_tokens}
        heartbeat = msgspec.structs.replace(heartbeat, counters=counted)
        for connection in list(shell.peers.values()):
            if connection.peer.role == "gateway":
                connection.send(heartbeat)

    for gateway in settings.gateways:
        shell.spawn(join(worker, machine, gateway, secret))
    shell.spawn(shell.steps())
    shell.spawn(shell.ticks(settings.heartbeat_s, beat))
    await shell.stopping.wait()
    if shell.restart_reason is None and not broken:
        worker.begin_drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.drain_timeout_s):
                while not shell.idle:  # noqa: ASYNC110 (the core has no events to wait for)
                    await asyncio.sleep(0.02)
    if listener is not None:
        await listener.close()
    transport.close()
    return 0 if shell.restart_reason is None and not broken else EXIT_RESTART


def main(prepare: Callable[[WorkerProcess], Wrap] = refuse_faults) -> None:
    """Entry point; does not return. ``prepare`` sees the settings before anything else happens."""

    def start(settings: WorkerProcess, secret_fd: int) -> int:
        wrap = prepare(settings)
        return asyncio.run(run(settings, read_secret_fd(secret_fd), wrap))

    live("python -m kvseal.workers", WorkerProcess, start, (TransportError, MemoryError))
