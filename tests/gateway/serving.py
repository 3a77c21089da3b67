"""A real server on a loopback port, in the test's own event loop."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from fastapi import FastAPI

from kvseal.gateway.server import server_config
from kvseal.gateway.settings import GatewaySettings


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # they are the test runner's


@contextlib.asynccontextmanager
async def serving(app: FastAPI, settings: GatewaySettings) -> AsyncIterator[int]:
    """The port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = _Server(server_config(app, settings, timeout_graceful_shutdown=2))
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            while not server.started:  # noqa: ASYNC110 - the library has no event for it
                await asyncio.sleep(0.001)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await task
