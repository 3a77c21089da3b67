"""Workers that die, clients that vanish, bits that flip: one terminal answer each, every page back, the
server lives.
"""

import contextlib
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.e2e.harness import LAB, Served, serving

from kvseal.supervisor.server import Modules

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(300)]
OPTIONS = {"dtype": "float32", "prefill_pool_tokens": 9000, "decode_pool_tokens": 9000, "max_context": 8192}
LONG = " ".join(["The harbour was quiet before sunrise."] * 200)


@pytest.fixture(scope="module")
def served(tiny_folder: Path) -> Iterator[Served]:
    with serving(tiny_folder, OPTIONS) as server:
        yield server


class Streamed:
    """A streaming request that runs in a thread, and what came of it."""

    def __init__(self, served: Served, prompt: str, max_tokens: int) -> None:
        self.status = 0
        self.events: list[str] = []
        self.first = threading.Event()
        body = {
            "model": served.model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "stream": True,
        }
        self._thread = threading.Thread(target=self._run, args=(served.url, body))
        self._thread.start()

    def _run(self, url: str, body: dict[str, object]) -> None:
        with (
            httpx.Client(base_url=url, timeout=90) as http,
            http.stream("POST", "/v1/completions", json=body) as answer,
        ):
            self.status = answer.status_code
            for line in answer.iter_lines():
                if line:
                    self.events.append(line.removeprefix("data: "))
                    self.first.set()
        self.first.set()

    def join(self) -> None:
        self._thread.join(90)
        assert not self._thread.is_alive(), "the client hangs (F23)"

    @property
    def error(self) -> dict[str, str] | None:
        last = json.loads(self.events[-1]) if self.events and self.events[-1] != "[DONE]" else {}
        return last.get("error")


def test_a_decode_worker_killed_in_mid_answer_ends_the_stream_with_an_error(served: Served) -> None:
    """F03, F21, F23: an error event and no [DONE]; then the next request is served by the worker's next
    life.
    """
    full = served.pools()
    running = Streamed(served, "Once upon a time", 4000)
    assert running.first.wait(60)
    served.kill("decode-0")
    running.join()
    assert running.status == 200
    assert running.error is not None
    assert running.error["code"] == "worker_lost"
    assert "[DONE]" not in running.events
    served.wait_ready()
    assert served.complete(prompt="Hello again", max_tokens=4).status_code == 200
    assert served.pools() == full


def test_a_prefill_worker_killed_in_mid_prompt_costs_one_attempt_or_one_clear_error(served: Served) -> None:
    """F07, F11: the request waits for the worker's next life, or ends with 503 — never with 200 and no
    content.
    """
    full = served.pools()
    outcome: list[httpx.Response] = []

    def ask() -> None:
        outcome.append(served.complete(prompt=LONG, max_tokens=4, ignore_eos=True))

    asking = threading.Thread(target=ask)
    asking.start()
    served.wait(lambda status: bool(status["open_requests"]), "asked")
    served.kill("prefill-0")
    asking.join(90)
    assert len(outcome) == 1
    answer = outcome[0]
    if answer.status_code == 200:
        assert answer.json()["usage"]["completion_tokens"] == 4
    else:
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "worker_lost"
    served.wait_ready()
    assert served.pools() == full


def test_the_gateway_killed_in_mid_answer_frees_every_page(served: Served) -> None:
    """F17: decode ends what nobody waits for; the gateway's next life listens on the same port."""
    full = served.pools()
    body = {"model": served.model, "prompt": "Hello", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with (
        httpx.Client(base_url=served.url, timeout=90) as http,
        http.stream("POST", "/v1/completions", json=body) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        served.kill("gateway")
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)
    served.wait_ready()
    assert served.complete(prompt="Hello again", max_tokens=4).status_code == 200
    assert served.pools() == full


def test_killing_workers_and_dropping_clients_at_random_moments_leaves_every_pool_as_full_as_at_the_start(
    served: Served,
) -> None:
    """F07, F17: 200 moments drawn from a seed; every 20th of them kills a worker, the others drop a
    client.
    """
    full = served.pools()
    draw = random.Random(20_260_909)
    for moment in range(200):
        if moment % 20 == 19:
            with dropped_client(served, draw):
                served.kill(draw.choice(["prefill-0", "decode-0"]))
            served.wait_ready()
        else:
            with dropped_client(served, draw):
                time.sleep(draw.random() * 0.15)
    assert served.pools() == full
    assert served.complete(prompt="Hello again", max_tokens=4).status_code == 200
    guards = served.all_counters()
    assert not any(
        count
        for found in guards.values()
        for name, count in found.items()
        if name in ("guard_g5", "guard_g8")
    )


@contextlib.contextmanager
def dropped_client(served: Served, draw: random.Random) -> Iterator[None]:
    """A client that sends a request and closes its connection without a word."""
    words = draw.choice([3, 50, 400, 1200])
    body = json.dumps(
        {
            "model": served.model,
            "prompt": " ".join(["harbour"] * words),
            "max_tokens": draw.choice([1, 16, 500]),
            "ignore_eos": True,
            "stream": draw.random() < 0.5,
        }
    ).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.server.port)) as client:
        client.sendall(head.encode() + body)
        yield


def test_one_bit_flipped_between_seal_and_pull_fails_the_request_and_no_other(tiny_folder: Path) -> None:
    """F14, F22: the canary is read 0; reads 1 and 2 are the attempt and its one repetition."""
    flip = json.dumps({"type": "FlipBit", "position": 0, "byte": 12_345 % 512, "bit": 3})
    schedule = f'transport:{{"faults": {{"1": {flip}, "2": {flip}}}}}'
    modules = Modules(worker=LAB.worker, gateway="kvseal.gateway", worker_faults=(schedule,))
    with serving(tiny_folder, OPTIONS, modules) as faulty:
        full = faulty.pools()
        answer = faulty.complete(prompt="The harbour was quiet before sunrise.", max_tokens=4)
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "integrity_check_failed"
        assert (
            faulty.complete(prompt="The harbour was quiet before sunrise.", max_tokens=4).status_code == 200
        )
        assert faulty.counters("decode")["guard_g5"] == 2
        assert faulty.pools() == full


def test_one_bit_flipped_once_costs_one_attempt(tiny_folder: Path) -> None:
    """G12: a new attempt on other pages, counted, and the right answer."""
    flip = json.dumps({"type": "FlipBit", "position": 0, "byte": 7, "bit": 0})
    modules = Modules(
        worker=LAB.worker,
        gateway="kvseal.gateway",
        worker_faults=(f'transport:{{"faults": {{"1": {flip}}}}}',),
    )
    with serving(tiny_folder, OPTIONS, modules) as faulty:
        first = faulty.complete(prompt="The harbour was quiet before sunrise.", max_tokens=8)
        second = faulty.complete(prompt="The harbour was quiet before sunrise.", max_tokens=8)
        assert first.status_code == second.status_code == 200
        assert first.json()["choices"] == second.json()["choices"]
        assert faulty.counters("decode")["retries"] == 1
