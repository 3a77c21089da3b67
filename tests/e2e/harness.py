"""A whole server, as the supervisor starts it: real processes, real sockets, a real model."""

import asyncio
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils.logging import disable_progress_bar

from kvseal.supervisor.config import load_config
from kvseal.supervisor.server import Modules, Server, running

PATIENCE_S = 90.0
LAB = Modules(worker="kvseal.lab.worker", gateway="kvseal.lab.gateway")


class Served:
    """A running server and a client for it. The supervisor lives in a thread of its own."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.url = server.url
        self.http = httpx.Client(base_url=server.url, timeout=PATIENCE_S)
        self._loop = loop

    def status(self) -> dict[str, Any]:
        """What the gateway says of all processes. Waits for a gateway that is being restarted."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            found = asyncio.run_coroutine_threadsafe(self.server.status(), self._loop).result(PATIENCE_S)
            if found is not None:
                return found
            time.sleep(0.05)
        raise AssertionError("the gateway does not answer")

    def wait_ready(self) -> dict[str, Any]:
        """Until every pair of workers has proven itself (again)."""
        return self.wait(lambda status: bool(status["ready"]), "ready")

    def wait(self, wanted: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """The first status that is ``wanted``."""
        deadline_s = time.monotonic() + PATIENCE_S
        status = self.status()
        while not wanted(status):
            assert time.monotonic() < deadline_s, f"not {what} within {PATIENCE_S} s: {status}"
            time.sleep(0.05)
            status = self.status()
        return status

    def pools(self) -> dict[str, tuple[int, int, int]]:
        """Free, leased and quarantined pages of the one worker of each role, when no request is open
        anywhere.
        """

        def idle(status: dict[str, Any]) -> bool:
            beats = [worker["pool"] for worker in status["workers"]]
            return (
                bool(status["ready"])
                and not status["open_requests"]
                and all(beat and not beat["running"] + beat["waiting"] for beat in beats)
            )

        # Two heartbeats, so that what is seen was said after everything had ended.
        self.wait(idle, "idle")
        time.sleep(1.1)
        status = self.wait(idle, "idle")
        return {
            worker["role"]: tuple(
                worker["pool"][name] for name in ("free_pages", "leased_pages", "quarantined_pages")
            )
            for worker in status["workers"]
        }

    def all_counters(self) -> dict[str, dict[str, int]]:
        """The counters of the one worker of each role, fresh."""
        time.sleep(1.1)  # two heartbeats
        return {worker["role"]: worker["pool"]["counters"] for worker in self.status()["workers"]}

    def counters(self, role: str) -> dict[str, int]:
        """Those of one role."""
        return self.all_counters()[role]

    def kill(self, name: str) -> None:
        """SIGKILL the child called ``name`` (``decode-0``, ``gateway`` …)."""
        child = next(child for child in self.server.children if child.command.name == name)
        if child.pid is not None:
            os.kill(child.pid, signal.SIGKILL)

    def complete(self, **body: Any) -> httpx.Response:
        """POST /v1/completions, greedy unless said."""
        return self.http.post("/v1/completions", json={"model": self.model, "temperature": 0} | body)

    @property
    def model(self) -> str:
        """The id that clients name."""
        return self.server.plan.model_id


@contextmanager
def serving(
    model: Path, options: Mapping[str, Any], modules: Modules | None = None, *, wait: bool = True
) -> Iterator[Served]:
    """A server of ``model``; ready where ``wait``. Raises StartRefused as the supervisor does."""
    config = load_config(None, {"port": 0, "drain_timeout_s": 5.0} | dict(options))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="supervisor", daemon=True)
    thread.start()

    def call(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(2 * PATIENCE_S)

    async def make() -> tuple[Any, Server]:
        context = running(config, model, modules)
        return context, await context.__aenter__()

    try:
        context, server = call(make())
        try:
            served = Served(server, loop)
            if wait:
                call(server.wait_ready(PATIENCE_S))
            try:
                yield served
            finally:
                served.http.close()
        finally:
            call(context.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def tiny_model(embedded: Path, folder: Path) -> Path:
    """A random Llama with the embedded model's tokenizer: as quick as a whole server can be started."""
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=49_152,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    disable_progress_bar()  # type: ignore[no-untyped-call]
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(embedded / name, folder / name)
    return folder
