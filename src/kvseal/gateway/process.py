"""One gateway process, from its start to its end."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterator

import uvicorn

from kvseal.core.dispatch import GatewayConfig, GatewayCore
from kvseal.core.errors import StartRefused
from kvseal.core.ids import InstanceId, TenantId
from kvseal.gateway.app import create_admin_app, create_app
from kvseal.gateway.dispatch import Dispatcher, gateway_hello
from kvseal.gateway.model_files import load_tokenizer
from kvseal.gateway.server import server_config
from kvseal.gateway.settings import GatewaySettings, TenantKey
from kvseal.process import GatewayProcess, SettingsUnreadable, read_settings
from kvseal.process.life import (
    EXIT_REFUSED,
    EXIT_RESTART,
    die_with_parent,
    end_on_bugs,
    leave,
    log_to_stderr,
    on_signals,
    parse_arguments,
)
from kvseal.wire import read_secret_fd

_log = logging.getLogger(__name__)


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
    path, secret_fd, parent = parse_arguments("python -m kvseal.gateway")
    die_with_parent(parent)
    status = EXIT_REFUSED
    try:
        settings = read_settings(path, GatewayProcess)
        log_to_stderr(f"gateway/{os.getpid()}", settings.log_level)
        prepare(settings)
        status = asyncio.run(run(settings, read_secret_fd(secret_fd)))
    except (StartRefused, SettingsUnreadable, OSError) as error:
        _log.error("%s", error)
    except Exception:
        _log.critical("the gateway failed", exc_info=True)
        status = EXIT_RESTART
    leave(status)
