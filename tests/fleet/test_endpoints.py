"""Live servers that are well, and ones that hang, redirect, ask for a key, lie or never stop. Loopback
only.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kvseal.fleet import http
from kvseal.fleet.endpoints import metrics_facts, read_endpoint
from kvseal.fleet.facts import Key, Note
from kvseal.fleet.http import Limits
from kvseal.fleet.prometheus import parse_metrics

Answer = Callable[[BaseHTTPRequestHandler], None]
QUICK = Limits(connect_s=1, read_s=0.3, total_s=0.6)


class _Handler(BaseHTTPRequestHandler):
    answer: Answer
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        try:
            type(self).answer(self)
        except OSError:  # the auditor hung up, as it should
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    running: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        handler = type("Handler", (_Handler,), {"answer": staticmethod(answer)})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        running.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def send(request: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(body)


def codes(notes: list[Note]) -> set[str]:
    return {note.code for note in notes}


def test_sglang_is_read_whatever_the_content_type_says(serve: Callable[[Answer], str]) -> None:
    pages = {
        "/v1/models": {"data": [{"id": "m", "owned_by": "sglang", "root": "m", "max_model_len": 900}]},
        "/server_info": {
            "disaggregation_mode": "decode",
            "version": "0.5.20",
            "max_total_num_tokens": 500,
            "api_key": "k",
        },
    }
    metrics = b'sglang:max_total_num_tokens{a="b"} 400.0\nsglang:num_transfer_failed_reqs_total 2.0\n'

    def answer(request: BaseHTTPRequestHandler) -> None:
        if request.path == "/metrics":
            send(request, metrics, Content_Type="application/json")
        else:
            send(request, json.dumps(pages[request.path]).encode(), Content_Type="image/png")

    ((server,), notes) = read_endpoint(serve(answer))
    assert notes == []
    assert server.values(Key.VERSION) == ("0.5.20",)
    assert server.values(Key.ROLE) == ("decode",)
    assert server.values(Key.POOL) == (500, 400)  # page and metric disagree: both are kept
    assert server.values(Key.CONTEXT) == (900,)
    assert server.values(Key.TRANSFER_FAILED) == (2,)
    assert server.values(Key.API_KEY) == (True,)
    assert "k" not in {fact.source.text for fact in server.of(Key.API_KEY)}


def test_an_unknown_mode_is_no_role(serve: Callable[[Answer], str]) -> None:
    page = json.dumps({"disaggregation_mode": "something new", "version": "0.9.0"}).encode()
    ((server,), _) = read_endpoint(serve(lambda request: send(request, page)))
    assert server.of(Key.ROLE) == ()


def test_one_that_hangs_is_asked_once(serve: Callable[[Answer], str]) -> None:
    asked: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        time.sleep(2)

    begin = time.monotonic()
    servers, notes = read_endpoint(serve(answer), limits=QUICK)
    assert time.monotonic() - begin < 1.5
    assert servers == []
    assert codes(notes) == {"times-out"}
    assert asked == ["/v1/models"]


def test_one_that_drips_ends_at_the_total_limit(serve: Callable[[Answer], str]) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        send(request, b"{")
        for _ in range(100):
            request.wfile.write(b" ")
            time.sleep(0.05)

    begin = time.monotonic()
    _, notes = read_endpoint(serve(answer), limits=QUICK)
    assert time.monotonic() - begin < 4
    assert "times-out" in codes(notes)


def test_redirects_are_told_and_keys_do_not_travel(serve: Callable[[Answer], str]) -> None:
    seen: list[str | None] = []
    other = serve(lambda request: seen.append(request.headers.get("Authorization")))
    here = serve(lambda request: send(request, b"", 302, Location=f"{other}/v1/models"))
    servers, notes = read_endpoint(here, {"Authorization": "Bearer secret"})
    assert servers == []
    assert codes(notes) == {"redirects"}
    assert seen == []


def test_a_missing_key_is_said(serve: Callable[[Answer], str]) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        known = request.headers.get("Authorization") == "Bearer secret"
        send(request, b'{"data": [{"owned_by": "vllm"}]}' if known else b"no", 200 if known else 401)

    url = serve(answer)
    assert codes(read_endpoint(url)[1]) == {"needs-token"}
    ((server,), _) = read_endpoint(url, {"Authorization": "Bearer secret"})
    assert server.values(Key.ENGINE) == ("vllm",)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[1]", b"null", b"\xff\xfe\x00", b'{"data": 7}', b'{"data": [7, null]}', b"[" * 5000],
)
def test_nonsense_is_no_fact(serve: Callable[[Answer], str], body: bytes) -> None:
    servers, notes = read_endpoint(serve(lambda request: send(request, body)))
    assert servers == []
    assert notes


def test_one_that_never_stops_is_cut(serve: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_BODY_BYTES", 1 << 16)

    def answer(request: BaseHTTPRequestHandler) -> None:
        send(request, b"")
        while True:
            request.wfile.write(b"x" * 65536)

    assert "answer-too-large" in codes(read_endpoint(serve(answer))[1])


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "file:///etc/passwd", "http://[::1", "http://x y", "//"]
)
def test_bad_addresses_are_said(url: str) -> None:
    servers, notes = read_endpoint(url, limits=QUICK)
    assert servers == []
    assert codes(notes) <= {"bad-url", "unreachable"}
    assert notes


def test_a_closed_port_is_unreachable() -> None:
    assert codes(read_endpoint("http://127.0.0.1:9", limits=QUICK)[1]) == {"unreachable"}


def test_passwords_of_addresses_are_not_printed() -> None:
    _, notes = read_endpoint("http://user:secret@127.0.0.1:9", limits=QUICK)
    assert "secret" not in str(notes)


def test_labelled_counters_that_are_absent_are_zero_where_their_neighbour_is_there() -> None:
    """F26: the engines' labelled counters appear with the first event."""
    lines = ["sglang:num_decode_deferred_kv_release_reqs 0.0"]
    assert [(fact.key, fact.value) for fact in metrics_facts("m", lines)] == [(Key.DEFERRED_TIMEOUTS, 0)]
    lines += ['sglang:decode_deferred_kv_release_total{outcome="acked"} 7', "x NaN"]
    assert [(fact.key, fact.value) for fact in metrics_facts("m", lines)] == [(Key.DEFERRED_TIMEOUTS, 0)]
    lines += ['sglang:decode_deferred_kv_release_total{outcome="timeout",tp_rank="1"} 2']
    assert [(fact.key, fact.value) for fact in metrics_facts("m", lines)] == [(Key.DEFERRED_TIMEOUTS, 2)]


def test_metrics_keep_whole_finite_samples_only() -> None:
    lines = ["a 1", 'b{x="y\\"z"} 2.5e3 1700000000', "c +Inf", "d", "# a 1", "e{", "f 1 2 3", "g 0x1"]
    assert [(s.name, s.labels, s.value) for s in parse_metrics(lines)] == [
        ("a", {}, 1.0),
        ("b", {"x": 'y\\"z'}, 2500.0),
    ]
