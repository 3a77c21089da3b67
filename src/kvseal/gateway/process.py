"""One gateway process, from its start to its end."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator

import uvicorn

from kvseal.core.dispatch import GatewayConfig, GatewayCore
from kvseal.core.ids import InstanceId, TenantId
from kvseal.gateway.app import create_admin_app, create_app
from kvseal.gateway.dispatch import Dispatcher, gateway_hello
from kvseal.gateway.model_files import load_tokenizer
from kvseal.gateway.server import server_config
from kvseal.gateway.settings import GatewaySettings, TenantKey
from kvseal.process import GatewayProcess, SettingsUnreadable
from kvseal.process.life import EXIT_RESTART, end_on_bugs, live, on_signals
from kvseal.wire import read_secret_fd


class _Server(uvicorn.Server):
    """Leaves signals to us: a drain ends the requests first, and then the server."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def refuse_faults(settings: GatewayProcess) -> None:
    """What a gateway that serves prepares: nothing, and it knows no faults."""
    if settings.faults:
        raise SettingsUnreadable("a gateway that serves has no faults: only the lab's builds do")


async def run(settings: GatewayProcess, secret: bytes) -> int:
    """One gateway, until it is told to stop; the exit status."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    on_signals(loop, stopping)
    broken = end_on_bugs(loop, stopping)
    core = GatewayCore(
        GatewayConfig(context=settings.context, prefill=settings.prefill, decode=settings.decode)
    )
    hello = gateway_hello(InstanceId(os.urandom(16)), settings.model_id)
    dispatcher = Dispatcher(core, hello, secret, settings.model_id)
    listener = await dispatcher.listen(settings.address)
    http = GatewaySettings(
        tenants=tuple(TenantKey(TenantId(tenant.name), tenant.key_hash) for tenant in settings.tenants),
        default_max_tokens=settings.max_tokens_default,
        request_timeout_s=settings.request_timeout_s,
    )
    tokenizer = await asyncio.to_thread(load_tokenizer, settings.model)
    public = _Server(server_config(create_app(dispatcher, tokenizer, http), http))
    admin = _Server(server_config(create_admin_app(dispatcher), http, uds=str(settings.admin)))
    listening = socket.socket(fileno=settings.listen_fd)
    servers = [
        loop.create_task(public.serve(sockets=[listening])),
        loop.create_task(admin.serve()),
    ]
    ticking = loop.create_task(dispatcher.ticks())
    await asyncio.wait(
        [loop.create_task(stopping.wait()), ticking, *servers], return_when=asyncio.FIRST_COMPLETED
    )
    status = 0 if stopping.is_set() and not broken else EXIT_RESTART
    await dispatcher.drain(settings.drain_timeout_s)
    for server in (public, admin):
        server.should_exit = True
    await asyncio.wait(servers, timeout=5.0)
    ticking.cancel()
    await listener.close()
    return status


def main(prepare: Callable[[GatewayProcess], None] = refuse_faults) -> None:
    """Entry point; does not return. ``prepare`` sees the settings before anything else happens."""

    def start(settings: GatewayProcess, secret_fd: int) -> int:
        prepare(settings)
        return asyncio.run(run(settings, read_secret_fd(secret_fd)))

    live("python -m kvseal.gateway", GatewayProcess, start)
