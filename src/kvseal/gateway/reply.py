"""Writes one response: begun once, ended once."""

import asyncio
import contextlib

from starlette.types import Receive, Send

from kvseal.gateway.refusals import Refused

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"


class Reply:
    """The response to one request. ``request`` is the server's own id for it (``x-request-id``)."""

    def __init__(self, send: Send, request: str) -> None:
        self.request = request
        self.begun = False
        self._send = send

    async def whole(self, body: bytes) -> None:
        """Status 200 and all of a JSON body."""
        await self._begin(200, JSON, {"content-length": str(len(body))})
        await self._body(body, more=False)

    async def events(self, data: bytes, *, last: bool = False) -> None:
        """Some server-sent events. The first ones bring the status 200 with them."""
        if not self.begun:
            await self._begin(200, EVENTS, {"cache-control": "no-cache", "x-accel-buffering": "no"})
        await self._body(data, more=not last)

    async def refuse(self, refused: Refused) -> None:
        """An error: as a status with a JSON body, or as the last event of a running stream."""
        body = refused.body()
        if self.begun:
            await self._body(b"data: " + body + b"\n\n", more=False)
            return
        await self._begin(refused.code.status, JSON, refused.headers | {"content-length": str(len(body))})
        await self._body(body, more=False)

    async def refuse_unread(self, refused: Refused, receive: Receive, linger_s: float) -> None:
        """As :meth:`refuse`, to a client that may still be sending its body.

        Closing at once would reset the connection under its hands, and it would not see why. So what it
        sends is thrown away for a moment.
        """
        body = refused.body()
        headers = refused.headers | {"content-length": str(len(body)), "connection": "close"}
        await self._begin(refused.code.status, JSON, headers)
        await self._body(body, more=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(linger_s):
                while (await receive()).get("more_body", False):
                    pass
        await self._body(b"", more=False)

    async def _begin(self, status: int, kind: str, headers: dict[str, str]) -> None:
        self.begun = True
        headers = {"content-type": kind, "x-request-id": self.request} | headers
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def _body(self, body: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
