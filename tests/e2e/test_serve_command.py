"""`kvseal serve` as its user meets it: the start table, tenants and keys, the end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest

from kvseal.gateway.keys import hash_key, new_key

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(200)]
KVSEAL = (sys.executable, "-m", "kvseal.cli")
POOLS = ("--prefill-pool-tokens", "9000", "--decode-pool-tokens", "9000", "--dtype", "float32")


@contextmanager
def command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """The running command and what it printed with --json."""
    process = subprocess.Popen(
        [*KVSEAL, "serve", "--json", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate(timeout=30)[1]
        yield process, json.loads(line)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_the_start_table_says_what_is_really_there_and_sigterm_leaves_nothing_behind(
    tiny_folder: Path,
) -> None:
    with command("--model", str(tiny_folder), *POOLS) as (process, table):
        assert table["guards"] == "all 12 on"
        assert table["context"] == "8,192 tokens advertised"
        assert table["prefill pool"] == "9,008 tokens allocated, 16 of each in reserve"
        assert len(table["layout"].split(",")[0]) == 16
        assert httpx.get(f"{table['url']}/ready").status_code == 200
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) == 3
        answer = httpx.get(f"{table['url']}/v1/models").json()
        assert answer["data"][0]["max_model_len"] == 8192
    assert process.returncode == 0
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def test_a_killed_supervisor_leaves_no_orphans(tiny_folder: Path) -> None:
    with command("--model", str(tiny_folder), *POOLS) as (process, _):
        children = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, signal.SIGKILL)
        _, alive = psutil.wait_procs(children, timeout=40)
        assert not alive


def test_no_secret_is_in_argv_or_environment(tiny_folder: Path) -> None:
    """The cluster secret comes by an inherited descriptor."""
    with command("--model", str(tiny_folder), *POOLS) as (process, _):
        for child in psutil.Process(process.pid).children(recursive=True):
            assert child.cmdline()[1:3] in (["-m", "kvseal.workers"], ["-m", "kvseal.gateway"])
            options = [word for word in child.cmdline()[3:] if word.startswith("--")]
            assert options == ["--settings", "--secret-fd", "--parent"]
            assert not [
                name for name in child.environ() if "SECRET" in name.upper() and "KVSEAL" in name.upper()
            ]


def test_the_tenant_comes_from_the_key_and_the_official_client_works(
    tiny_folder: Path, tmp_path: Path
) -> None:
    """G9, F25: wrong key 401; `user` in the body changes nothing."""
    acme, other = new_key(), new_key()
    config = tmp_path / "tenants.toml"
    config.write_text(
        "".join(
            f'[[tenants]]\nname = "{name}"\nkey_hash = "{hash_key(key)}"\n'
            for name, key in (("acme", acme), ("other", other))
        )
    )
    with command("--model", str(tiny_folder), *POOLS, "--config", str(config)) as (_, table):
        client = openai.OpenAI(base_url=f"{table['url']}/v1", api_key=acme, max_retries=0)
        answer = client.chat.completions.create(
            model=tiny_folder.name,
            messages=[{"role": "user", "content": "Hello"}],
            max_tokens=5,
            user="other",
        )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 5
        chunks = list(
            client.completions.create(
                model=tiny_folder.name,
                prompt="Hello",
                max_tokens=5,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 5
        stranger = openai.OpenAI(base_url=f"{table['url']}/v1", api_key=new_key(), max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            stranger.models.list()
        with pytest.raises(openai.BadRequestError, match="maximum context length is 8192 tokens"):
            client.completions.create(model=tiny_folder.name, prompt=[5] * 8193, max_tokens=1)


def test_a_refused_start_says_both_numbers_and_exits_with_1(tiny_folder: Path) -> None:
    """F04."""
    began = time.monotonic()
    found = subprocess.run(
        [*KVSEAL, "serve", "--port", "0", "--model", str(tiny_folder), "--prefill-pool-tokens", "4096"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 1
    for part in ("8192", "4080", "--prefill-pool-tokens", "--max-context"):
        assert part in found.stderr
    assert time.monotonic() - began < 100


def test_a_port_in_use_is_named_at_once(tiny_folder: Path) -> None:
    with command("--model", str(tiny_folder), *POOLS) as (_, table):
        port = table["url"].rpartition(":")[2]
        found = subprocess.run(
            [*KVSEAL, "serve", "--port", port, "--model", str(tiny_folder)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert found.returncode == 1
    assert f"port {port}" in found.stderr
