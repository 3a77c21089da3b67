"""The HTTP server under the application: uvicorn, with the limits that it lacks.

A client that sends its headers a byte at a time, or never, that sends endless headers, that leaves its
answer unread, or that sends the next request before it has the answer to the last one, gets no hold of a
connection for long.
"""

import asyncio
from http import HTTPStatus
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kvseal.core.errors import Code
from kvseal.gateway.refusals import error_body
from kvseal.gateway.settings import GatewaySettings

_BACKLOG: Final = 1024


def server_config(app: FastAPI, settings: GatewaySettings, **options: Any) -> uvicorn.Config:
    """How to serve ``app``.

    ``options`` go to uvicorn: where to listen unless the server is given sockets (``host`` and ``port``,
    ``uds``, ``fd``), or ``timeout_graceful_shutdown`` in seconds.
    """
    protocol = type("Protocol", (BoundedProtocol,), {"settings": settings})
    return uvicorn.Config(
        app,
        **options,
        http=protocol,
        ws="none",
        lifespan="on",
        interface="asgi3",
        backlog=_BACKLOG,
        timeout_keep_alive=max(1, round(settings.keep_alive_timeout_s)),
        access_log=False,  # a path may hold what nobody shall read
        log_config=None,
        server_header=False,
        proxy_headers=False,
    )


class BoundedProtocol(HttpToolsProtocol):
    """One connection.

    ::

        idle ──first byte──> headers ──all there──> request ──answered──> idle
         └ header_timeout_s ┴── header_timeout_s ──┘   (kept-alive connections idle for keep_alive_timeout_s)
    """

    settings: GatewaySettings

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_alarm: asyncio.TimerHandle | None = None
        self._stall_alarm: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._in_headers = True
        self._deaf = False  # to requests that come before the last one is answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        if len(self.connections) > self.settings.connections:
            self._refuse(503, Code.NO_CAPACITY, "The server has too many connections: try again later.")
            return
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        for alarm in (self._header_alarm, self._stall_alarm):
            if alarm is not None:
                alarm.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._deaf:
            return
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > self.settings.header_bytes:
            self._refuse(431, Code.REQUEST_TOO_LARGE, "The headers are too large.")

    def on_message_begin(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # HTTP allows it, and nobody does it. Were it queued, we would stop reading, and not see the
            # client go.
            self._deaf = True
            self.cycle.keep_alive = False
            return
        super().on_message_begin()
        self._in_headers = True
        self._await_headers()

    def on_url(self, url: bytes) -> None:
        if not self._deaf:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._deaf:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._deaf:
            return
        self._in_headers = False
        self._header_bytes = 0
        if self._header_alarm is not None:
            self._header_alarm.cancel()
            self._header_alarm = None
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._deaf:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the signature is the library's
        if self.cycle is not None and not self.cycle.response_complete and self.cycle.response_started:
            self.transport.close()  # in mid-answer there is no way to say it
            return
        self._refuse(400, Code.INVALID_REQUEST, "This is not HTTP.")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall_alarm = self.loop.call_later(self.settings.stalled_reader_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_alarm is not None:
            self._stall_alarm.cancel()
            self._stall_alarm = None

    def _await_headers(self) -> None:
        if self._header_alarm is None:
            self._header_alarm = self.loop.call_later(self.settings.header_timeout_s, self._headers_late)

    def _headers_late(self) -> None:
        if not self.transport.is_closing():
            self._refuse(408, Code.REQUEST_TIMEOUT, "The headers did not arrive in time.")

    def _refuse(self, status: int, code: Code, message: str) -> None:
        """A last word from below the application."""
        body = error_body(code, message)
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
