"""Live servers: SGLang's `/server_info` (older: `/get_server_info`), vLLM's `/version`, `/v1/models`,
`/metrics`.

Bodies are judged by what they hold, not by their content type.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import msgspec

from kvseal.fleet.facts import Fact, Key, Note, Server, Source, Value, source
from kvseal.fleet.http import Answer, Limits, fetch
from kvseal.fleet.literals import integer_of
from kvseal.fleet.prometheus import Sample, parse_metrics
from kvseal.fleet.settings import SGLANG
from kvseal.fleet.versions import parse_version

_GAUGES: Final = {
    "sglang:max_total_num_tokens": Key.POOL,
    "sglang:context_len": Key.CONTEXT,
}
_COUNTERS: Final = {
    "sglang:num_transfer_failed_reqs_total": Key.TRANSFER_FAILED,
    "sglang:num_bootstrap_failed_reqs_total": Key.BOOTSTRAP_FAILED,
    "vllm:nixl_num_failed_transfers_total": Key.TRANSFER_FAILED,
    "vllm:nixl_num_kv_expired_reqs_total": Key.LEASE_EXPIRED,
}
_RELEASES: Final = "sglang:decode_deferred_kv_release_total"
_DECODER: Final = msgspec.json.Decoder()


class _Endpoint:
    def __init__(self, client: httpx.Client, base: str, limits: Limits) -> None:
        self._client = client
        self._base = base
        self._limits = limits
        self.facts: list[Fact] = []
        self.notes: list[Note] = []
        self.dead = False

    def get(self, path: str, *, optional: bool = False) -> Answer | None:
        """A complete 200, or None with a note. A 404 of an optional path is no news."""
        if self.dead:
            return None
        answer = fetch(self._client, self._base + path, self._limits)
        if not answer.problem:
            return answer
        if not (optional and answer.status == httpx.codes.NOT_FOUND):
            self.notes.append(Note(answer.problem, self._base + path, answer.detail))
        # One that does not answer at all is not asked four more times.
        self.dead = answer.status == 0 or answer.problem == "times-out"
        return None

    def json(self, path: str, *, optional: bool = False) -> dict[str, Any] | None:
        answer = self.get(path, optional=optional)
        if answer is None:
            return None
        try:
            body = _DECODER.decode(answer.body)
        except (msgspec.DecodeError, RecursionError, ValueError):
            body = None
        if not isinstance(body, dict):
            self.notes.append(Note("not-json", self._base + path))
            return None
        return body

    def source(self, path: str, text: str, line: int | None = None) -> Source:
        return source("url", self._base + path, line, text)

    def add(self, key: Key, value: Value, path: str, text: str) -> None:
        self.facts.append(Fact(key, value, self.source(path, text)))


def read_endpoint(
    url: str, headers: dict[str, str] | None = None, limits: Limits | None = None
) -> tuple[list[Server], list[Note]]:
    """Facts of one server. `headers` may hold an Authorization; it goes to this origin only."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
    except ValueError:  # half an IPv6 address
        return [], [Note("bad-url", url[:200])]
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        return [], [Note("bad-url", url[:200])]
    host = parts.netloc.rsplit("@", 1)[-1]  # a password in the URL is not printed
    base = f"{parts.scheme}://{host}{parts.path.rstrip('/').removesuffix('/v1')}"
    # trust_env: no proxy of the environment between the auditor and a server inside the cluster.
    with httpx.Client(headers=headers or {}, trust_env=False, verify=True) as client:
        endpoint = _Endpoint(client, base, limits or Limits())
        _models(endpoint)
        _server_info(endpoint)
        if not any(fact.key is Key.VERSION for fact in endpoint.facts):
            _vllm_version(endpoint)
        _metrics(endpoint)
    if not endpoint.facts:
        if not endpoint.notes:
            endpoint.notes.append(Note("nothing-known-there", base))
        return [], endpoint.notes
    return [Server(base).plus(endpoint.facts)], endpoint.notes


def _models(endpoint: _Endpoint) -> None:
    body = endpoint.json("/v1/models")
    data = body.get("data") if body else None
    for card in data if isinstance(data, list) else ():
        if not isinstance(card, dict) or card.get("parent"):
            continue
        owner, longest = card.get("owned_by"), integer_of(card.get("max_model_len"))
        if isinstance(owner, str) and owner in {"sglang", "vllm", "kvseal"}:
            endpoint.add(Key.ENGINE, owner, "/v1/models", f'"owned_by": "{owner}"')
        if isinstance(card.get("root"), str):
            endpoint.add(Key.MODEL, card["root"], "/v1/models", f'"root": "{card["root"]}"')
        if longest is not None:
            endpoint.add(Key.CONTEXT, longest, "/v1/models", f'"max_model_len": {longest}')


def _server_info(endpoint: _Endpoint) -> None:
    path = "/server_info"
    body = endpoint.json(path, optional=True)
    if body is None and not endpoint.dead:
        path = "/get_server_info"
        body = endpoint.json(path, optional=True)
    if body is None or not {"disaggregation_mode", "internal_states", "model_path"} & body.keys():
        return
    endpoint.add(Key.ENGINE, "sglang", path, "the shape of the answer")
    if isinstance(body.get("version"), str) and parse_version(body["version"]) is not None:
        endpoint.add(Key.VERSION, body["version"], path, f'"version": "{body["version"]}"')
    for setting in SGLANG:
        name = setting.names[0]
        raw = body.get(name)
        if name not in body or not isinstance(raw, (str, int, float, bool, type(None))):
            continue
        if raw is None and setting.key not in {
            Key.ROLE,
            Key.QUANTIZATION,
            Key.API_KEY,
            Key.ADMIN_KEY,
            Key.DIST_INIT,
        }:
            continue
        value = setting.convert(raw)
        if value is None and raw is not None:
            continue
        secret = setting.key in {Key.API_KEY, Key.ADMIN_KEY}
        endpoint.add(setting.key, value, path, f'"{name}": {"***" if secret and raw else raw}')
    pool = integer_of(body.get("max_total_num_tokens"))
    if pool is not None:
        endpoint.add(Key.POOL, pool, path, f'"max_total_num_tokens": {pool}')


def _vllm_version(endpoint: _Endpoint) -> None:
    body = endpoint.json("/version", optional=True)
    found = body.get("version") if body else None
    if isinstance(found, str) and parse_version(found) is not None:
        if not any(fact.key is Key.ENGINE for fact in endpoint.facts):
            endpoint.add(Key.ENGINE, "vllm", "/version", f'"version": "{found}"')
        endpoint.add(Key.VERSION, found, "/version", f'"version": "{found}"')


def _metrics(endpoint: _Endpoint) -> None:
    answer = endpoint.get("/metrics", optional=True)
    if answer is None:
        return
    text = answer.body.decode("utf-8", "replace")
    samples = list(parse_metrics(text.splitlines()))
    if not samples:
        endpoint.notes.append(Note("no-metrics", endpoint.source("/metrics", "").name))
        return
    engines = {sample.name.split(":", 1)[0] for sample in samples if ":" in sample.name} & {"sglang", "vllm"}
    if not any(fact.key is Key.ENGINE for fact in endpoint.facts) and len(engines) == 1:
        endpoint.add(Key.ENGINE, engines.pop(), "/metrics", "the names of its metrics")
    endpoint.facts += _metric_facts(samples, lambda s: endpoint.source("/metrics", s.text, s.line))


def _metric_facts(samples: list[Sample], where: Callable[[Sample], Source]) -> Iterator[Fact]:
    totals: dict[Key, tuple[float, Sample]] = {}
    for sample in samples:
        gauge, counter = _GAUGES.get(sample.name), _COUNTERS.get(sample.name)
        if gauge is not None and sample.value > 0:
            yield Fact(gauge, int(sample.value), where(sample))
        value = sample.value
        if sample.name == _RELEASES:
            # The counter exists, so releases are counted; `timeout`: without proof that the write had ended.
            counter = Key.DEFERRED_TIMEOUTS
            value = sample.value if sample.labels.get("outcome") == "timeout" else 0.0
        if counter is not None:
            total, largest = totals.get(counter, (0.0, sample))
            totals[counter] = (total + value, sample if value > 0 and total == 0 else largest)
    for key, (total, sample) in totals.items():
        yield Fact(key, int(total), where(sample))
    if Key.DEFERRED_TIMEOUTS not in totals:
        # Labelled counters are absent until the first event (F26); the gauge beside it is there from the
        # start.
        held = next((s for s in samples if s.name == "sglang:num_decode_deferred_kv_release_reqs"), None)
        if held is not None:
            yield Fact(Key.DEFERRED_TIMEOUTS, 0, where(held))


def metrics_facts(name: str, lines: list[str]) -> list[Fact]:
    """Facts of a saved `/metrics` page."""
    samples = list(parse_metrics(lines))
    return list(_metric_facts(samples, lambda sample: source("url", name, sample.line, sample.text)))
