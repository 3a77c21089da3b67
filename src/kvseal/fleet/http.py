"""GET requests to servers that may hang, redirect, lie or never stop talking: bounded in time and bytes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import httpx

MAX_BODY_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class Limits:
    connect_s: float = 3.0
    read_s: float = 5.0
    total_s: float = 10.0
    """For one request, however slowly its bytes drip."""


@dataclass(frozen=True)
class Answer:
    """`problem` is the code of a note; empty for a 200 that was read to its end."""

    status: int
    body: bytes
    problem: str = ""
    detail: str = ""


Clock = Callable[[], float]


def fetch(client: httpx.Client, url: str, limits: Limits, clock: Clock = time.monotonic) -> Answer:
    """One GET. Redirects are reported, not followed: a key must not travel to another host."""
    timeout = httpx.Timeout(limits.read_s, connect=limits.connect_s)
    deadline = clock() + limits.total_s
    try:
        with client.stream("GET", url, timeout=timeout, follow_redirects=False) as response:
            if response.is_redirect:
                return Answer(
                    response.status_code, b"", "redirects", response.headers.get("location", "")[:200]
                )
            if response.status_code in {401, 403}:
                return Answer(response.status_code, b"", "needs-token", str(response.status_code))
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    return Answer(
                        response.status_code, b"", "answer-too-large", f"> {MAX_BODY_BYTES >> 20} MiB"
                    )
                if clock() > deadline:
                    return Answer(response.status_code, b"", "times-out", f"> {limits.total_s:g} s")
            if response.status_code != httpx.codes.OK:
                return Answer(response.status_code, bytes(body), "http-error", str(response.status_code))
            return Answer(response.status_code, bytes(body))
    except httpx.TimeoutException:
        return Answer(0, b"", "times-out", f"> {limits.read_s:g} s")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as problem:
        return Answer(0, b"", "unreachable", type(problem).__name__)
