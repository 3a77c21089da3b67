"""A lease shorter than a slow decode queue."""

from kvseal.audit.ask import connector_is
from kvseal.audit.cites import VLLM_STALE, package
from kvseal.audit.rule import Effect, Rule, Severity, per_server
from kvseal.audit.texts import Text
from kvseal.audit.truth import Judged, ask, every
from kvseal.fleet.facts import Key, Server

DEFAULT_S = 30


def judge(server: Server) -> Judged:
    short = ask(server, Key.LEASE_S, lambda value: isinstance(value, (int, float)) and value < DEFAULT_S)
    return every((connector_is(server, "nixl"), short))


RULE = Rule(
    id="vllm-short-lease",
    severity=Severity.MEDIUM,
    effect=Effect.NONE,
    title=Text("The KV lease is shorter than its default", "Die KV-Lease ist kürzer als voreingestellt"),
    meaning=Text(
        "The producer frees blocks when the lease ends, even if a reader is late. The shorter the "
        "lease, the more reads meet reused blocks.",
        "Der Erzeuger gibt Blöcke frei, wenn die Lease endet, auch wenn ein Leser sich verspätet. Je "
        "kürzer sie ist, desto mehr Leser treffen auf wiederverwendete Blöcke.",
    ),
    fix=Text("Leave kv_lease_duration at 30 s or more.", "kv_lease_duration bei 30 s oder mehr belassen."),
    sources=(
        package("vllm", "0.29.0 – 0.33.0", "kv_connector/v1/nixl/base_scheduler.py"),
        VLLM_STALE,
    ),
    versions="0.22 ≤ v",
    check=per_server(judge),
)
