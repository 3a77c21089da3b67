"""The corpus: inputs in the engines' own formats, each with what must come out; and a server for its live
ones.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvseal.audit.advisories import load_advisories
from kvseal.audit.judge import Report, judge
from kvseal.audit.rule import Effect, Rule
from kvseal.audit.rules import load_rules
from kvseal.fleet.facts import Fleet
from kvseal.fleet.gather import Inputs, gather

CORPUS = Path(__file__).parent / "corpus"
TODAY = date(2026, 12, 2)


@dataclass(frozen=True)
class Case:
    name: str
    verdict: str
    spec: dict[str, Any]

    def listed(self, key: str) -> list[str]:
        return [str(item) for item in self.spec.get(key, [])]


def load_cases() -> list[Case]:
    specs = yaml.safe_load((CORPUS / "cases.yaml").read_text(encoding="utf-8"))
    return [Case(spec["name"], spec["verdict"], spec) for spec in specs]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@pytest.fixture(scope="session")
def corpus_url() -> Iterator[str]:
    """Serves the folders of live servers on the loopback interface."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(CORPUS)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


Facts = Callable[[Case], Fleet]


@pytest.fixture(scope="session")
def facts_of(corpus_url: str) -> Facts:
    """Reads a case's inputs, once."""
    known: dict[str, Fleet] = {}

    def read(case: Case) -> Fleet:
        if case.name not in known:
            known[case.name] = gather(
                Inputs(
                    logs=[str(CORPUS / path) for path in case.listed("log")],
                    commands=[str(CORPUS / path) for path in case.listed("command")],
                    urls=[f"{corpus_url}/{path}" for path in case.listed("url")],
                    engine_versions=case.listed("version"),
                    packages=[str(CORPUS / path) for path in case.listed("packages")],
                    environments=[str(CORPUS / path) for path in case.listed("env")],
                )
            )
        return known[case.name]

    return read


@pytest.fixture(scope="session")
def every_rule() -> tuple[Rule, ...]:
    return (*load_rules(), *load_advisories())


@pytest.fixture(scope="session")
def judged(every_rule: tuple[Rule, ...]) -> Callable[[Fleet], Report]:
    return lambda fleet: judge(fleet, every_rule, TODAY)


@pytest.fixture(scope="session")
def weighed(every_rule: tuple[Rule, ...]) -> Callable[[Fleet], Report]:
    """The verdict alone: rules without effect on it are left out, which is three times as fast."""
    weighing = [rule for rule in every_rule if rule.effect is not Effect.NONE]
    return lambda fleet: judge(fleet, weighing, TODAY)
