"""Names of things: tenants, requests, attempts, instances, pages.

A page id names *what must be in the page*: it is a keyed hash over the layout, the parent page and the token
ids. Two tenants with the same prompt get different ids, because the key holds the tenant (G9).
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple, NewType

import numpy as np

TenantId = NewType("TenantId", str)
RequestId = NewType("RequestId", str)
InstanceId = NewType(
    "InstanceId", bytes
)  # 16 bytes, drawn by the shell once for each life of a worker process
LayoutDigest = NewType("LayoutDigest", bytes)  # 16 bytes
PageKey = NewType("PageKey", bytes)  # 32 bytes, never leaves the worker that derived it
PageId = NewType("PageId", bytes)  # 16 bytes
Seal = NewType("Seal", bytes)  # 16 bytes

ID_BYTES = 16
NOBODY = InstanceId(b"")  # where no instance is meant
ROOT = PageId(bytes(ID_BYTES))  # the parent of a prompt's first page


class AttemptKey(NamedTuple):
    """What every message about a request is keyed by: a stale attempt is never taken for a live one (F08)."""

    request: RequestId
    attempt: int


def short(identity: bytes) -> str:
    """First eight hex digits, for tables and logs."""
    return identity.hex()[:8]


def derive_page_key(secret: bytes, tenant: TenantId, cache_version: int) -> PageKey:
    """The tenant's key for page ids, derived alike in each worker from the cluster secret (32 to 64 bytes).

    A new ``cache_version`` makes every page id of the past unknown.
    """
    if not 32 <= len(secret) <= 64:
        raise ValueError(f"the cluster secret must have 32 to 64 bytes, this one has {len(secret)}")
    digest = blake2b(key=secret, digest_size=32, person=b"kvseal-page-key")
    digest.update(cache_version.to_bytes(8, "little"))
    digest.update(tenant.encode())
    return PageKey(digest.digest())


def page_id(key: PageKey, layout: LayoutDigest, parent: PageId, tokens: Sequence[int]) -> PageId:
    """Keyed BLAKE2b of (layout digest, parent page id, token ids).

    ``tokens`` are the ids that the page holds, in order, each in [0, 2**32): a full page has ``page_size`` of
    them, the last page of a prompt may have fewer. Layout and parent have fixed lengths, so the encoding is
    unambiguous.
    """
    digest = blake2b(key=key, digest_size=ID_BYTES, person=b"kvseal-page-id")
    digest.update(layout)
    digest.update(parent)
    digest.update(np.asarray(tokens, dtype="<u4").tobytes())
    return PageId(digest.digest())


def page_ids(
    key: PageKey, layout: LayoutDigest, tokens: Sequence[int], page_size: int, parent: PageId = ROOT
) -> tuple[PageId, ...]:
    """The chain of ids of the pages that hold ``tokens``, the last of which may be partial."""
    ids: list[PageId] = []
    for first in range(0, len(tokens), page_size):
        parent = page_id(key, layout, parent, tokens[first : first + page_size])
        ids.append(parent)
    return tuple(ids)
