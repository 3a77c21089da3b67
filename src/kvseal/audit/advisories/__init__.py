"""Published advisories about isolation and the transfer plane, one per file; each module has a `RULE`.

This data has a version and a date of its own: reports show both and warn when it has grown old. An
identifier becomes a rule only after its record was looked up. What could not be confirmed stands in
`UNCONFIRMED` and nowhere else.
"""

from dataclasses import dataclass
from datetime import date
from importlib import import_module
from typing import Final

from kvseal.audit.rule import Rule

DATA_VERSION: Final = "2026.12.1"
DATA_DATE: Final = date(2026, 12, 1)
STALE_AFTER_DAYS: Final = 60

MODULES: Final = (
    "cve_2025_29783",
    "cve_2025_30165",
    "cve_2025_32444",
    "cve_2025_47277",
    "cve_2026_3059",
    "cve_2026_3060",
    "cve_2026_10813",
    "cve_2026_14890",
    "cve_2026_15969",
    "cve_2026_15977",
    "cve_2026_53923",
    "cve_2026_86793",
    "cve_2026_89032",
    "cve_2026_93034",
    "cve_2026_93088",
    "cve_2026_93838",
    "cve_2026_94622",
    "cve_2026_105192",
    "cve_2026_105754",
    "cve_2026_105756",
    "cve_2026_106037",
    "cve_2026_107204",
    "cve_2026_111391",
    "cve_2026_111392",
    "cve_2026_112266",
    "cve_2026_114049",
    "cve_2026_116180",
    "ghsa_fpch_3xrf_7q96",
    "ghsa_v97p_wpxp_px84",
)


@dataclass(frozen=True)
class Unconfirmed:
    """An identifier that was looked for. No rule rests on it."""

    id: str
    found: str


UNCONFIRMED: Final = (
    Unconfirmed(
        "CVE-2026-115912",
        "record confirmed (vLLM, forged multimodal shared-memory handles reach pickle); affected and "
        "fixed versions not",
    ),
    Unconfirmed(
        "CVE-2023-4969", "LeftoverLocals: a matter of GPU hardware and drivers, outside of what is audited"
    ),
    Unconfirmed("leak of August/September 2026", "no CVE was found for it"),
)


def load_advisories() -> tuple[Rule, ...]:
    return tuple(import_module(f"kvseal.audit.advisories.{name}").RULE for name in MODULES)


def age_days(today: date) -> int:
    return (today - DATA_DATE).days


def is_stale(today: date) -> bool:
    return age_days(today) > STALE_AFTER_DAYS
