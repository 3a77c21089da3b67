"""API keys: made here, stored as hashes, and the one source of a request's tenant (G9, F25).

A key is ``kvs-`` and 256 random bits. With that much entropy a plain SHA-256 is enough: nobody can try out
candidates, so a slow hash would slow down nobody but the server. Keys too short for this are refused.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable
from typing import Final

from kvseal.core.errors import StartRefused
from kvseal.core.ids import TenantId

DEFAULT_TENANT: Final = TenantId("default")
SHORTEST_KEY: Final = 32  # characters; 128 bits as hex digits
LONGEST_KEY: Final = 512
_PREFIX: Final = "kvs-"
_HASH_PREFIX: Final = "sha256:"


def new_key() -> str:
    """A fresh key, to be shown once."""
    return _PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    """What the configuration stores of ``key``: ``sha256:`` and 64 hex digits.

    Raises ValueError for a key that could be guessed, or that no HTTP header can carry.
    """
    if not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
        raise ValueError(f"a key has {SHORTEST_KEY} to {LONGEST_KEY} characters, this one has {len(key)}")
    if not re.fullmatch(r"[!-~]+", key):
        raise ValueError("a key has printable ASCII characters without spaces only")
    return _HASH_PREFIX + _digest(key.encode()).hex()


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class KeyRing:
    """Whose a key is. Without any key there is one tenant, ``default``, and everybody is it."""

    def __init__(self, keys: Iterable[tuple[TenantId, str]]) -> None:
        """``keys``: tenants and hashes of their keys; a tenant may have several. Raises StartRefused."""
        self._tenants: dict[bytes, TenantId] = {}
        for tenant, key_hash in keys:
            # A slash marks the server's own tenants (the canary's).
            if not tenant or "/" in tenant or tenant != tenant.strip():
                raise StartRefused(
                    f"the tenant name {tenant!r} is empty, has a slash, or has spaces around it"
                )
            if not re.fullmatch(_HASH_PREFIX + "[0-9a-f]{64}", key_hash):
                raise StartRefused(
                    f"the key_hash of tenant {tenant} is not `sha256:` and 64 hex digits, "
                    "as `kvseal keys hash` prints them"
                )
            digest = bytes.fromhex(key_hash.removeprefix(_HASH_PREFIX))
            if self._tenants.setdefault(digest, tenant) != tenant:
                raise StartRefused(f"tenants {self._tenants[digest]} and {tenant} have the same key")

    def tenant(self, authorization: str | None) -> TenantId | None:
        """The tenant of an ``Authorization`` header; None if it proves nothing.

        A dict look-up by digest leaks no useful timing: what could be learnt is a digest, not a key.
        """
        if not self._tenants:
            return DEFAULT_TENANT
        scheme, _, key = (authorization or "").partition(" ")
        key = key.strip()
        if scheme.lower() != "bearer" or len(key) > LONGEST_KEY:
            return None
        return self._tenants.get(_digest(key.encode("utf-8", "replace")))
