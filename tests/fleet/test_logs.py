"""Whose line is it? Servers in one log, told apart."""

from pathlib import Path

import pytest

from kvseal.fleet.facts import Key, Server
from kvseal.fleet.logs import read_log
from kvseal.fleet.prefixes import unprefix

ARGS = (
    "server_args=ServerArgs(model_path='m', tokenizer_mode='auto', host='{host}', port={port}, tp_size=1, "
    "disaggregation_mode='{role}')"
)
CAPACITY = (
    "max_total_num_tokens={pool}, chunked_prefill_size=8192, max_prefill_tokens=16384, context_len=4096"
)


def start(role: str, port: int = 30000, host: str = "127.0.0.1") -> str:
    return "[2026-08-27 09:58:12] " + ARGS.format(role=role, port=port, host=host)


def capacity(pool: int) -> str:
    return "[2026-08-27 10:03:55 TP0] " + CAPACITY.format(pool=pool)


def read(tmp_path: Path, *lines: str) -> list[Server]:
    path = tmp_path / "engine.log"
    path.write_text("\n".join(lines) + "\n")
    return read_log(str(path))[0]


def pools(servers: list[Server]) -> dict[object, tuple[object, ...]]:
    return {server.one(Key.ROLE): server.values(Key.POOL) for server in servers}


@pytest.mark.parametrize(
    ("line", "stream", "text"),
    [
        ("plain text", "", "plain text"),
        ("prefill-1  | [x] y", "prefill-1", "[x] y"),
        ("[pod/p-0/sglang] [x] y", "p-0/sglang", "[x] y"),
        ("2026-08-27T10:00:00.123456789Z stderr F y", "", "y"),
        ("2026-08-27T10:00:00Z y", "", "y"),
        ("Aug 27 10:00:00 node7 sglang[12]: y", "node7 sglang", "y"),
        ("p-0 sglang [2026-08-27 10:00:00] y", "p-0 sglang", "[2026-08-27 10:00:00] y"),
        ('{"log": "y\\n", "stream": "stderr"}', "", "y"),
        ('{"kubernetes": {"pod_name": "p", "container_name": "c"}, "message": "y"}', "p/c", "y"),
        ('[pod/p/c] {"log": "a  | y"}', "p/c/a", "y"),
        ("\x1b[32mgreen\x1b[0m", "", "green"),
        ("{not json", "", "{not json"),
        ('{"other": 1}', "", '{"other": 1}'),
    ],
)
def test_prefixes_are_taken_off(line: str, stream: str, text: str) -> None:
    assert unprefix(line) == (stream, text)


def test_prefixed_lines_belong_to_their_process(tmp_path: Path) -> None:
    servers = read(
        tmp_path,
        f"p-1  | {start('prefill')}",
        f"d-1  | {start('decode', 30001)}",
        f"d-1  | {capacity(900)}",
        f"p-1  | {capacity(500)}",
    )
    assert pools(servers) == {"prefill": (500,), "decode": (900,)}


def test_concatenated_logs_are_told_apart(tmp_path: Path) -> None:
    servers = read(tmp_path, start("prefill"), capacity(500), start("decode", 30001), capacity(900))
    assert pools(servers) == {"prefill": (500,), "decode": (900,)}


def test_a_line_that_could_be_of_either_server_is_given_to_both(tmp_path: Path) -> None:
    """Conservative: without prefixes nobody can say whose pool it is, so the smaller counts for both."""
    servers = read(tmp_path, start("prefill"), start("decode", 30001), capacity(500), capacity(900))
    assert pools(servers) == {"prefill": (500, 900), "decode": (500, 900)}


def test_the_last_start_of_a_server_counts(tmp_path: Path) -> None:
    servers = read(tmp_path, start("decode"), capacity(100), start("decode"), capacity(900))
    assert pools(servers) == {"decode": (900,)}


def test_ranks_that_disagree_are_both_kept(tmp_path: Path) -> None:
    servers = read(tmp_path, start("decode"), capacity(900), capacity(800))
    assert pools(servers) == {"decode": (900, 800)}


def test_events_are_counted_with_their_first_line(tmp_path: Path) -> None:
    event = "[x TP0] Deferred KV release for room 1 timed out after 30.0s; releasing anyway."
    (server,) = read(tmp_path, start("decode"), capacity(1), event, event, event)
    (fact,) = server.of(Key.DEFERRED_TIMEOUTS)
    assert (fact.value, fact.source.line) == (3, 3)


def test_old_releases_are_known_by_the_fields_they_lack(tmp_path: Path) -> None:
    (server,) = read(tmp_path, start("decode"))
    assert server.values(Key.PREDATES_FIX) == (True,)
    newer = start("decode").replace("tp_size=1", "tp_size=1, disaggregation_enable_kv_checksum=False")
    (server,) = read(tmp_path, newer)
    assert server.values(Key.PREDATES_FIX) == (False,)
    (server,) = read(tmp_path, newer[:-1])  # cut off: says nothing about what is missing
    assert server.values(Key.PREDATES_FIX) == ()


def test_vllm_says_it_in_several_lines(tmp_path: Path) -> None:
    server_keys = (Key.VERSION, Key.POOL, Key.CONTEXT, Key.TP, Key.QUANTIZATION, Key.ROLE)
    (server,) = read(
        tmp_path,
        "(APIServer pid=1) INFO 09-24 16:30:02 [api_server.py:1839] vLLM API server version 0.11.0",
        "(APIServer pid=1) INFO 09-24 16:30:02 [utils.py:233] non-default args: {'max_model_len': 4096}",
        "(EngineCore pid=2) INFO 09-24 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: "
        "model='m', dtype=torch.bfloat16, max_seq_len=4096, tensor_parallel_size=2, quantization=fp8",
        "(EngineCore pid=2) INFO 09-24 16:31:00 [kv.py:1087] GPU KV cache size: 1,234,560 tokens",
    )
    assert {key: server.one(key) for key in server_keys} == {
        Key.VERSION: "0.11.0",
        Key.POOL: 1_234_560,
        Key.CONTEXT: 4096,
        Key.TP: 2,
        Key.QUANTIZATION: "fp8",
        Key.ROLE: "combined",
    }


def test_a_log_of_something_else_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("GET / 200\n")
    servers, notes = read_log(str(path))
    assert servers == []
    assert [note.code for note in notes] == ["no-known-line"]
