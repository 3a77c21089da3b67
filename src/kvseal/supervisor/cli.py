"""``kvseal serve`` and ``kvseal status``."""

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from kvseal.core.errors import StartRefused
from kvseal.supervisor.config import ServeConfig, load_config


def serve(
    config: Annotated[
        Path | None, typer.Option(help="TOML file with any of these options and [[tenants]].")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model folder. Default: the embedded SmolLM2-135M.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="float32 or bfloat16 (default where the CPU has it).")
    ] = None,
    prefill: Annotated[int | None, typer.Option(help="Prefill workers. [1]")] = None,
    decode: Annotated[int | None, typer.Option(help="Decode workers. [1]")] = None,
    max_context: Annotated[str | None, typer.Option(help="Advertised context in tokens, or 'auto'.")] = None,
    prefill_pool_tokens: Annotated[int | None, typer.Option(help="Tokens of each prefill pool.")] = None,
    decode_pool_tokens: Annotated[int | None, typer.Option(help="Tokens of each decode pool.")] = None,
    page_size: Annotated[int | None, typer.Option(help="Tokens of a page. [16]")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on, 0 for any. [8000]")] = None,
    threads: Annotated[int | None, typer.Option(help="Compute threads of each worker.")] = None,
    attention: Annotated[
        str | None, typer.Option(help="auto, native (refuse without it) or sdpa. [auto]")
    ] = None,
    max_batch: Annotated[int | None, typer.Option(help="Sequences of one decode step. [64]")] = None,
    chunk_tokens: Annotated[int | None, typer.Option(help="Tokens of one prefill step. [512]")] = None,
    retries: Annotated[int | None, typer.Option(help="New attempts after a failed one. [1]")] = None,
    prefix_reuse: Annotated[
        bool | None, typer.Option(help="Reuse pages of a tenant's own earlier prompts. [no]")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR. [WARNING]")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the start table as one line of JSON.")
    ] = False,
) -> None:
    """Serve a model: a gateway, prefill workers and decode workers, each a process of its own.

    \b
    Examples:
      kvseal serve
      kvseal serve --port 9000 --prefill 2 --max-context auto --decode-pool-tokens 20000
      kvseal serve --model ./Qwen3-0.6B --config tenants.toml

    Ctrl-C or SIGTERM drains and ends it; a second one ends it at once.

    \b
    Exit codes: 0 drained, 1 refused to start or failed (the reason is on stderr), 2 wrong usage.
    """
    flags: dict[str, Any] = {
        name: value for name, value in locals().items() if name not in ("config", "as_json")
    }
    if max_context is not None and max_context != "auto":
        if not max_context.isdigit():
            raise typer.BadParameter(
                f"--max-context must be a number of tokens or 'auto', not {max_context!r}"
            )
        flags["max_context"] = int(max_context)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        settled = load_config(config, flags)
        sys.exit(asyncio.run(_serve(settled, _find_model(settled), as_json)))
    except StartRefused as refusal:
        typer.echo(f"kvseal serve: {refusal}", err=True)
        raise typer.Exit(1) from None


def _find_model(config: ServeConfig) -> Path:
    if config.model is not None:
        return Path(config.model).expanduser()
    from kvseal.model import SMOLLM2, Preparation, default_home, ensure
    from kvseal.model.cli import shown_progress

    with shown_progress() as reporter:
        return ensure(default_home(os.environ), SMOLLM2, Preparation(reporter=reporter))


async def _serve(config: ServeConfig, model: Path, as_json: bool) -> int:
    from rich.console import Console

    from kvseal.supervisor.server import running
    from kvseal.supervisor.table import facts, show

    assert "kvseal.lab" not in sys.modules, "the lab must not be loaded where people are served"
    errors = Console(stderr=True)
    stopping = asyncio.Event()
    _stop_on_signals(stopping)
    async with running(config, model) as server:
        with errors.status("starting: workers load the model and prove themselves …"):
            ready = asyncio.ensure_future(server.wait_ready())
            done, _ = await asyncio.wait(
                {ready, asyncio.ensure_future(stopping.wait())}, return_when=asyncio.FIRST_COMPLETED
            )
            if ready not in done:
                ready.cancel()
                return 0
            status = ready.result()
        rows = facts(status, server.url)
        if as_json:
            typer.echo(json.dumps(dict(rows)))
        else:
            show(Console(), rows)
            typer.echo("Ctrl-C drains and ends it.")
        failed = asyncio.ensure_future(server.failed.wait())
        await asyncio.wait(
            {failed, asyncio.ensure_future(stopping.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        if server.refused is not None:
            raise StartRefused(server.refused)
        errors.print("draining …")
    return 0


def _stop_on_signals(stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        if stopping.is_set():
            os.killpg(0, signal.SIGKILL) if os.getpgrp() == os.getpid() else os._exit(128 + number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)


def status(
    port: Annotated[int, typer.Option(help="Port of the server that is meant.")] = 8000,
    as_json: Annotated[bool, typer.Option("--json", help="Print all that is known, as JSON.")] = False,
) -> None:
    """Show the pools and workers of a server of yours on this machine.

    \b
    Example:
      kvseal status --port 8000 --json

    \b
    Exit codes: 0 ready, 1 not ready or not there.
    """
    from kvseal.supervisor.status import find_status, show_status

    found = find_status(port)
    if found is None:
        typer.echo(f"kvseal status: no server of yours answers for port {port}", err=True)
        raise typer.Exit(1)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        show_status(found)
    raise typer.Exit(0 if found["ready"] else 1)
