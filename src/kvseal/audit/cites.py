"""Sources that several rules cite. All were looked up; `Standing.SECONDARY` marks another's account."""

from typing import Final

from kvseal.audit.rule import Cite, Standing

_SGLANG: Final = "https://github.com/sgl-project/sglang"


def sglang_issue(number: int, title: str) -> Cite:
    return Cite(f"sglang #{number}: {title}", f"{_SGLANG}/issues/{number}")


def sglang_pull(number: int, title: str) -> Cite:
    return Cite(f"sglang #{number}: {title}", f"{_SGLANG}/pull/{number}")


def vllm_issue(number: int, title: str) -> Cite:
    return Cite(f"vllm #{number}: {title}", f"https://github.com/vllm-project/vllm/issues/{number}")


def cve(identifier: str, title: str) -> Cite:
    return Cite(f"{identifier}: {title}", f"https://www.cve.org/CVERecord?id={identifier}")


def package(name: str, versions: str, file: str) -> Cite:
    """Read in the published package of these versions."""
    return Cite(f"published package {name} {versions}, {file}", f"pkg:pypi/{name}")


def secondary(title: str, url: str) -> Cite:
    return Cite(title, url, Standing.SECONDARY)


REJECTED_PROMPT: Final = sglang_issue(
    30233, "aborted prefill requests (input too long) cause decode to generate garbage"
)
REJECTED_PROMPT_FIX: Final = sglang_pull(30325, "Fix rejected prefills entering disaggregation")
PAGE_REUSE: Final = sglang_issue(24527, "Decode can reuse KV pages before prefill transfer writer finishes")
DEFERRED_RELEASE: Final = sglang_pull(35049, "Deferred decode-side KV release for aborts mid-transfer")
DEFERRED_NIXL: Final = sglang_pull(35360, "Deferred decode-side KV release for the NIXL backend")
DEFERRED_MORI: Final = sglang_pull(37077, "Centralize drain-aware abort acknowledgements")
DEFERRED_HARDENING: Final = sglang_pull(38961, "Harden deferred decode KV release")
CHECKSUM: Final = sglang_pull(39500, "Add optional KV transfer checksums")
CHECKSUM_SAFETY: Final = sglang_pull(39729, "Make the KV checksum flag safe to enable")
DEFAULTS: Final = package("sglang", "0.5.18 – 0.5.23", "srt/environ.py")
LIMITS: Final = package("sglang", "0.4.6 – 0.5.23", "srt/managers/tp_worker.py")
VLLM_SECURITY: Final = Cite("vLLM security guide", "https://docs.vllm.ai/en/stable/usage/security/")
VLLM_STALE: Final = vllm_issue(52234, "NIXL HMA receive failures can return HTTP 200 with corrupted tokens")
