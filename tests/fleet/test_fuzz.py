"""No reader raises, whatever it is given. Hypothesis looks for what would make it."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvseal.fleet.commands import commands_in
from kvseal.fleet.endpoints import read_endpoint
from kvseal.fleet.engine_lines import NEEDLES, Place, read_line
from kvseal.fleet.environment import read_environment
from kvseal.fleet.facts import Fleet, Value, redact
from kvseal.fleet.gather import Inputs, gather
from kvseal.fleet.http import Answer
from kvseal.fleet.literals import flag_of, integer_of, literal, number_of
from kvseal.fleet.logs import read_log
from kvseal.fleet.packages import image_facts, read_engine_version, read_packages
from kvseal.fleet.prefixes import unprefix
from kvseal.fleet.prometheus import parse_metrics
from kvseal.fleet.versions import parse_version

FUZZ = settings(max_examples=120, deadline=None, derandomize=True)
FILES = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

# Pieces of real inputs, so that random text gets past the first check of each reader.
PIECES = st.sampled_from(
    [
        *(needle.decode() for needle in NEEDLES),
        "server_args=ServerArgs(model_path='m', tokenizer_mode='auto', disaggregation_mode='decode')",
        "server_args={'model_path': 'm', 'tp_size': 8}",
        "max_total_num_tokens=681280, context_len=1048576",
        "LLM engine (v0.29.0) with config: model='m', max_seq_len=5",
        "non-default args: {'kv_transfer_config': KVTransferConfig(kv_connector='NixlConnector')}",
        "python3 -m sglang.launch_server --disaggregation-mode prefill",
        "vllm serve m --kv-transfer-config",
        "docker run -e A=b lmsysorg/sglang:v0.5.20",
        "services:\n  a:\n    command: ",
        "containers:\n  - name: x\n    command: [",
        "[Service]\nExecStart=",
        "FROM lmsysorg/sglang:v0.5.20\nCMD ",
        "\\\n",
        "'",
        '"',
        "{",
        "$(",
        "${X:-",
        "&a *a",
        "sglang==",
        "sglang @ ",
        "prefill-1  | ",
        "[pod/a/b] ",
        '{"log": "',
        "\x00",
        "\ud800",
        "\uff19",
        "1e999",
        "NaN",
    ]
)
TEXT = st.lists(st.one_of(PIECES, st.text(max_size=30), st.just("\n")), max_size=12).map("".join)


@FUZZ
@given(TEXT)
def test_lines_never_raise(text: str) -> None:
    for line in text.split("\n"):
        read_line(Place("f", 1, unprefix(line).text))
        redact(line)


@FUZZ
@given(TEXT)
def test_commands_never_raise(text: str) -> None:
    commands_in("f", text)


@FUZZ
@given(TEXT)
def test_lists_never_raise(text: str) -> None:
    lines = text.splitlines()
    read_packages("p", lines)
    read_environment("e", lines)
    read_engine_version(text)
    image_facts("option", "x", None, text)
    list(parse_metrics(lines))


@FUZZ
@given(st.one_of(st.text(max_size=40), st.integers(), st.floats(), st.booleans(), st.none()))
def test_values_never_raise(value: Value) -> None:
    integer_of(value)
    number_of(value)
    flag_of(value)
    literal(str(value))
    parse_version(str(value))


@FILES
@given(
    st.one_of(st.binary(max_size=300), TEXT.map(lambda text: text.encode("utf-8", "replace"))), st.booleans()
)
def test_files_never_raise(tmp_path: Path, data: bytes, packing: str) -> None:
    path = tmp_path / "input"
    path.write_bytes(gzip.compress(data)[: len(data) + 12] if packing == "gzip" else data)
    name = str(path)
    read_log(name)
    fleet = gather(Inputs([name], [name], [], [name], [name], [name]))
    assert isinstance(fleet, Fleet)


NAMES = st.sampled_from(
    [
        "data",
        "owned_by",
        "root",
        "parent",
        "max_model_len",
        "version",
        "internal_states",
        "api_key",
        "host",
        "disaggregation_mode",
        "max_total_num_tokens",
        "context_length",
        "tp_size",
        "model_path",
        "page_size",
    ]
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just("sglang")
)
PAGES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=6)),
    max_leaves=20,
)


@FILES
@given(st.one_of(PAGES.map(lambda page: json.dumps(page).encode()), st.binary(max_size=50)), TEXT)
def test_pages_of_servers_never_raise(monkeypatch: pytest.MonkeyPatch, page: bytes, text: str) -> None:
    def answer(_client: object, url: str, _limits: object) -> Answer:
        return Answer(200, text.encode("utf-8", "replace") if url.endswith("/metrics") else page)

    monkeypatch.setattr("kvseal.fleet.endpoints.fetch", answer)
    read_endpoint("http://127.0.0.1:1")


@pytest.mark.parametrize("text", ["x" * 200_000, "a=" * 50_000, "'" * 20_001, "\\\n" * 20_000, "(" * 50_000])
def test_monsters_are_read_in_bounded_time(text: str) -> None:
    commands_in("f", text)
    read_line(Place("f", 1, "server_args=" + text))
    read_line(Place("f", 1, "max_total_num_tokens=" + text))
    redact(text)
    unprefix(text)
