"""Each rule with an input that triggers it and one that does not: one fact apart where that is possible."""

from collections.abc import Callable
from datetime import date

import pytest
from tests.audit.fleets import DECODE, NIXL, PREFILL, VLLM, fleet

from kvseal.audit.advisories import DATA_DATE, is_stale, load_advisories
from kvseal.audit.judge import Report, Verdict
from kvseal.audit.rule import Rule, Severity, Standing
from kvseal.audit.rules import load_rules
from kvseal.fleet.facts import Fleet, Key, Value

K = Key
WIDE = "0.0.0.0"  # noqa: S104 - what the rules look for
RULES: tuple[Rule, ...] = (*load_rules(), *load_advisories())
BY_ID = {rule.id: rule for rule in RULES}


def decode(**changed: Value) -> dict[Key, Value]:
    return {**DECODE, **_keys(changed)}


def prefill(**changed: Value) -> dict[Key, Value]:
    return {**PREFILL, **_keys(changed)}


def vllm(**changed: Value) -> dict[Key, Value]:
    return {**VLLM, **_keys(changed)}


def nixl(**changed: Value) -> dict[Key, Value]:
    return {**NIXL, **_keys(changed)}


def _keys(changed: dict[str, Value]) -> dict[Key, Value]:
    return {Key[name.upper()]: value for name, value in changed.items()}


GOOD = (prefill(), decode())
# id: (triggering, clean)
CASES: dict[str, tuple[Fleet, Fleet]] = {
    "sglang-placeholder": (fleet(prefill(version="0.5.20", pool=681_280)), fleet(prefill(pool=681_280))),
    "sglang-version-affected": (fleet(decode(version="0.5.20")), fleet(decode(version="0.5.21"))),
    "sglang-mori-before-0.5.22": (
        fleet(decode(version="0.5.21", backend="mori")),
        fleet(decode(version="0.5.22", backend="mori")),
    ),
    "sglang-backend-without-hold": (fleet(decode(backend="ascend")), fleet(decode(backend="nixl"))),
    "sglang-hold-switched-off": (fleet(decode(deferred=False)), fleet(decode(deferred=True))),
    "sglang-pool-below-context": (fleet(prefill(pool=999_999)), fleet(prefill(pool=1_000_000))),
    "sglang-hold-timeout-short": (fleet(decode(deferred_timeout=29.9)), fleet(decode(deferred_timeout=30))),
    "sglang-hold-timed-out": (fleet(decode(deferred_timeouts=1)), fleet(decode())),
    "sglang-overlong-seen": (
        fleet(prefill(version="0.5.20", overlong_seen=2)),
        fleet(prefill(version="0.5.21", overlong_seen=2)),
    ),
    "sglang-layouts-differ": (fleet(prefill(page_size=32), decode()), fleet(*GOOD)),
    "sglang-stopgap-missing": (
        fleet(decode(version="0.5.19")),
        fleet(decode(version="0.5.19", deferred=True)),
    ),
    "sglang-stopgap-is-no-fix": (
        fleet(decode(version="0.5.20", deferred=True)),
        fleet(decode(version="0.5.20", deferred=False)),
    ),
    "sglang-branch-without-fixes": (fleet(decode(version="0.4.10.post2")), fleet(decode(version="0.5.19"))),
    "sglang-fixes-in-0.5.23": (fleet(decode(version="0.5.22")), fleet(decode())),
    "sglang-pool-without-margin": (fleet(prefill(pool=1_249_999)), fleet(prefill(pool=1_250_000))),
    "sglang-pools-differ": (fleet(prefill(pool=1_500_000), decode()), fleet(*GOOD)),
    "sglang-contexts-differ": (fleet(prefill(), decode(context=900_000)), fleet(*GOOD)),
    "sglang-parallelism-differs": (fleet(prefill(), decode(tp=16)), fleet(*GOOD)),
    "sglang-checksum-off": (fleet(decode(checksum=False)), fleet(decode())),
    "sglang-checksum-one-sided": (fleet(prefill(), decode(checksum=False)), fleet(*GOOD)),
    "sglang-checksum-skipped": (fleet(decode(decode_radix=True)), fleet(decode())),
    "sglang-checksum-mismatch-seen": (fleet(decode(checksum_mismatch=1)), fleet(decode())),
    "sglang-transfers-failing": (fleet(decode(transfer_failed=7)), fleet(decode())),
    "sglang-failure-injection": (fleet(decode(failure_prob=0.01)), fleet(decode(failure_prob=0.0))),
    "sglang-pickle-ipc": (fleet(decode(pickle_ipc=None)), fleet(decode())),
    "sglang-bootstrap-open": (fleet(prefill(host=WIDE)), fleet(prefill(host="::1"))),
    "sglang-router-open": (
        fleet({K.ENGINE: "sglang", K.ROLE: "router", K.HOST: WIDE, K.API_KEY: False}),
        fleet({K.ENGINE: "sglang", K.ROLE: "router", K.HOST: WIDE, K.API_KEY: True}),
    ),
    "bound-widely-without-key": (fleet(vllm(host="10.0.0.1", api_key=False)), fleet(vllm(host="10.0.0.1"))),
    "mooncake-memory-open": (
        fleet(decode(mooncake_version="0.3.12.post1")),
        fleet(decode(mooncake_version="0.3.13")),
    ),
    "mooncake-metadata-open": (
        fleet(decode(mooncake_metadata="http://10.0.0.9:8080/metadata", mooncake_version="0.3.13")),
        fleet(decode(mooncake_metadata="P2PHANDSHAKE", mooncake_version="0.3.13")),
    ),
    "vllm-stale-handle": (fleet(nixl()), fleet(vllm())),
    "vllm-remote-writes": (fleet(nixl(connector="MooncakeConnector")), fleet(nixl())),
    "vllm-recompute-policy": (fleet(nixl(load_failure_policy="recompute")), fleet(nixl())),
    "vllm-short-lease": (fleet(nixl(lease_s=10)), fleet(nixl())),
    "vllm-leases-expired": (fleet(nixl(lease_expired=3)), fleet(nixl())),
    "vllm-transfer-network": (fleet(nixl(side_channel_host=WIDE)), fleet(nixl())),
    "vllm-dev-mode": (fleet(vllm(dev_mode=True)), fleet(vllm())),
    "vllm-insecure-serialization": (fleet(vllm(insecure_serialization=True)), fleet(vllm())),
    "lmcache-disk-mixup": (
        fleet(nixl(connector="LMCacheConnectorV1", lmcache_disk="file:///cache/")),
        fleet(nixl(connector="LMCacheConnectorV1")),
    ),
    "prefix-cache-shared": (fleet(vllm(prefix_cache=True)), fleet(vllm())),
    "no-disaggregation": (fleet(vllm()), fleet(nixl())),
    "kvseal-verified": (fleet({K.ENGINE: "kvseal"}), fleet(vllm())),
    "CVE-2025-29783": (
        fleet(nixl(version="0.7.3", connector="MooncakePipe")),
        fleet(nixl(version="0.8.0", connector="MooncakePipe")),
    ),
    "CVE-2025-30165": (fleet(vllm(version="0.9.2")), fleet(vllm(version="0.10.0"))),
    "CVE-2025-32444": (
        fleet(nixl(version="0.8.4", connector="MooncakePipe")),
        fleet(nixl(version="0.8.5", connector="MooncakePipe")),
    ),
    "CVE-2025-47277": (
        fleet(nixl(version="0.8.4", connector="PyNcclConnector")),
        fleet(nixl(version="0.8.4", connector="NixlConnector")),
    ),
    "CVE-2026-3059": (fleet(decode(version="0.5.9")), fleet(decode(version="0.5.10"))),
    "CVE-2026-3060": (fleet(decode(version="0.4.6")), fleet(decode(version="0.5.10"))),
    "CVE-2026-14890": (fleet(decode(version="0.5.14")), fleet(decode(version="0.5.15"))),
    "CVE-2026-15969": (
        fleet(decode(version="0.5.15", api_key=False)),
        fleet(decode(version="0.5.15", api_key=True)),
    ),
    "CVE-2026-15977": (
        fleet(decode(version="0.5.15", api_key=False)),
        fleet(decode(version="0.5.15", api_key=False, admin_key=False)),
    ),
    "CVE-2026-53923": (
        fleet(vllm(version="0.23.0", quantization="gguf")),
        fleet(vllm(version="0.24.0", quantization="gguf")),
    ),
    "CVE-2026-86793": (
        fleet(decode(version="0.5.18", api_key=False)),
        fleet(decode(version="0.5.19", api_key=False)),
    ),
    "CVE-2026-89032": (
        fleet(vllm(litellm_version="1.100.3")),
        fleet(vllm(litellm_version="1.101.0")),
    ),
    "CVE-2026-93034": (
        fleet(decode(version="0.5.22", dp_attention=True, dist_init="10.0.0.1:20000")),
        fleet(decode(version="0.5.22", dp_attention=True, dist_init="127.0.0.1:20000")),
    ),
    "CVE-2026-93088": (fleet(decode(version="0.5.11")), fleet(decode(version="0.5.10"))),
    "CVE-2026-93838": (fleet(decode(version="0.5.20")), fleet(decode(version="0.5.20", role="combined"))),
    "CVE-2026-94622": (fleet(nixl(version="0.29.0")), fleet(nixl(version="0.30.0"))),
    "CVE-2026-105192": (fleet(vllm(lmcache_version="0.5.6")), fleet(vllm(lmcache_version="0.3.8"))),
    "CVE-2026-105754": (fleet(nixl(version="0.29.0")), fleet(nixl(version="0.30.0"))),
    "CVE-2026-105756": (
        fleet(nixl(version="0.29.0", connector="LMCacheMPConnector")),
        fleet(nixl(version="0.29.0")),
    ),
    "CVE-2026-106037": (
        fleet(decode(mooncake_version="0.3.13.post1")),
        fleet(decode(mooncake_version="0.3.14")),
    ),
    "CVE-2026-107204": (fleet(vllm(lmcache_version="0.5.5")), fleet(vllm(lmcache_version="0.5.6"))),
    "CVE-2026-111391": (
        fleet(decode(version="0.5.22", dumper_port="16000")),
        fleet(decode(version="0.5.22")),
    ),
    "CVE-2026-111392": (fleet(decode(version="0.5.21")), fleet(decode(version="0.5.22"))),
    "CVE-2026-112266": (fleet(decode(version="0.5.22")), fleet(decode(version="0.5.23"))),
    "CVE-2026-10813": (fleet(vllm(lmcache_version="0.5.4")), fleet(vllm(lmcache_version="0.5.5"))),
    "CVE-2026-114049": (fleet(vllm(version="0.30.0")), fleet(vllm(version="0.31.0"))),
    "CVE-2026-116180": (fleet(nixl(version="0.30.0")), fleet(nixl(version="0.31.0"))),
    "GHSA-fpch-3xrf-7q96": (fleet(vllm(version="0.21.0")), fleet(vllm(version="0.28.0"))),
    "GHSA-v97p-wpxp-px84": (fleet(vllm(version="0.20.2", pp=2)), fleet(vllm(version="0.20.2", pp=1))),
}
# These never say yes: they say that it is not known. id: (unknown, clean)
UNKNOWN: dict[str, tuple[Fleet, Fleet]] = {
    "peer-not-given": (fleet(prefill()), fleet(*GOOD)),
    "version-newer-than-data": (fleet(decode(version="0.6.0")), fleet(decode())),
    "vllm-connector-not-reviewed": (fleet(nixl(connector="P2pNcclConnector")), fleet(nixl())),
}


def truths(rule: Rule, given: Fleet) -> set[bool | None]:
    return {hit.judged.truth for hit in rule.check(given)}


def test_every_rule_is_tested() -> None:
    assert set(BY_ID) == set(CASES) | set(UNKNOWN)
    assert len(RULES) == len(BY_ID)


@pytest.mark.parametrize("name", CASES)
def test_rule_says_yes_to_its_input_and_no_to_the_clean_one(name: str) -> None:
    triggering, clean = CASES[name]
    assert True in truths(BY_ID[name], triggering)
    assert True not in truths(BY_ID[name], clean)


@pytest.mark.parametrize("name", UNKNOWN)
def test_rule_that_only_asks(name: str) -> None:
    unknown, clean = UNKNOWN[name]
    assert truths(BY_ID[name], unknown) == {None}
    assert None not in truths(BY_ID[name], clean)


@pytest.mark.parametrize("name", CASES)
def test_yes_rests_on_evidence(name: str) -> None:
    for hit in BY_ID[name].check(CASES[name][0]):
        if hit.judged.truth is True:
            assert hit.judged.because


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_rule_says_what_it_means_in_both_languages_and_where_it_stands(rule: Rule) -> None:
    for text in (rule.title, rule.meaning, rule.fix):
        assert len(text.en) > 5
        assert len(text.de) > 5
    assert rule.title.en != rule.title.de
    assert rule.versions
    assert rule.sources
    assert all(cite.url.startswith(("https://", "pkg:pypi/")) for cite in rule.sources)


def test_only_secondary_sources_are_marked() -> None:
    marked = {rule.id for rule in RULES if all(c.standing is Standing.SECONDARY for c in rule.sources)}
    assert marked == {"GHSA-v97p-wpxp-px84", "GHSA-fpch-3xrf-7q96"}
    assert all("secondary" in BY_ID[name].meaning.en for name in marked)


def test_a_good_deployment_has_nothing_of_weight(judged: Callable[[Fleet], Report]) -> None:
    report = judged(fleet(*GOOD))
    assert report.verdict is Verdict.NOT_AFFECTED
    assert (report.worst() or Severity.INFO) <= Severity.LOW


def test_decode_keeps_room_to_generate() -> None:
    """The pool is judged after reserve: decode cannot use what it keeps for generating."""
    rule = BY_ID["sglang-pool-below-context"]
    assert True in truths(rule, fleet(decode(pool=1_000_511)))
    assert True not in truths(rule, fleet(decode(pool=1_000_512)))


def test_worst_of_contradicting_sources_is_judged(judged: Callable[[Fleet], Report]) -> None:
    one, other = fleet(*GOOD), fleet(prefill(pool=500_000))
    mixed = Fleet((one.servers[0].plus(other.servers[0].of(Key.POOL)), one.servers[1]))
    assert judged(mixed).verdict is Verdict.AT_RISK
    assert mixed.servers[0].conflicts() == (Key.POOL,)


def test_data_grows_old() -> None:
    assert not is_stale(DATA_DATE)
    assert not is_stale(date.fromordinal(DATA_DATE.toordinal() + 60))
    assert is_stale(date.fromordinal(DATA_DATE.toordinal() + 61))
