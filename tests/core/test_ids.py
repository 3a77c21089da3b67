"""Page ids name what must be in a page, and for whom (G5, G9, F25)."""

from hashlib import blake2b

import numpy as np
import pytest

from kvseal.core.ids import (
    ID_BYTES,
    NOBODY,
    ROOT,
    AttemptKey,
    LayoutDigest,
    RequestId,
    TenantId,
    derive_page_key,
    page_id,
    page_ids,
    short,
)

SECRET = bytes(range(32))
A, B = TenantId("a"), TenantId("b")
LAYOUT = LayoutDigest(b"layout..layout..")
KEY = derive_page_key(SECRET, A, 0)


def test_constants() -> None:
    assert (16, bytes(16), b"") == (ID_BYTES, ROOT, NOBODY)


def test_an_attempt_is_known_by_its_request_and_its_number() -> None:
    key = AttemptKey(RequestId("r"), 2)
    assert (key.request, key.attempt) == ("r", 2)
    assert key != AttemptKey(RequestId("r"), 1)


def test_short_names_are_the_first_eight_digits() -> None:
    assert short(bytes.fromhex("0123456789abcdef")) == "01234567"


def test_a_page_key_is_keyed_blake2b_of_version_and_tenant() -> None:
    digest = blake2b(b"\x05" + bytes(7) + b"a", key=SECRET, digest_size=32, person=b"kvseal-page-key")
    assert derive_page_key(SECRET, A, 5) == digest.digest()


def test_every_tenant_secret_and_version_has_a_page_key_of_its_own() -> None:
    keys = {derive_page_key(SECRET, t, v) for t in (A, B) for v in (0, 1, 256)}
    keys.add(derive_page_key(SECRET[::-1], A, 0))
    assert len(keys) == 7
    assert all(len(key) == 32 for key in keys)


@pytest.mark.parametrize("length", [0, 31, 65])
def test_a_secret_of_another_length_is_refused(length: int) -> None:
    text = f"^the cluster secret must have 32 to 64 bytes, this one has {length}$"
    with pytest.raises(ValueError, match=text):
        derive_page_key(bytes(length), A, 0)


@pytest.mark.parametrize("length", [32, 64])
def test_secrets_of_32_to_64_bytes_are_taken(length: int) -> None:
    assert len(derive_page_key(bytes(length), A, 0)) == 32


def test_a_page_id_is_keyed_blake2b_of_layout_parent_and_tokens() -> None:
    tokens = (1, 70000, 2**32 - 1)
    content = LAYOUT + ROOT + np.array(tokens, "<u4").tobytes()
    digest = blake2b(content, key=KEY, digest_size=16, person=b"kvseal-page-id")
    assert page_id(KEY, LAYOUT, ROOT, tokens) == digest.digest()


def test_another_key_layout_parent_or_token_is_another_id() -> None:
    one = page_id(KEY, LAYOUT, ROOT, (1, 2))
    others = {
        page_id(derive_page_key(SECRET, B, 0), LAYOUT, ROOT, (1, 2)),
        page_id(KEY, LayoutDigest(b"another-layout.."), ROOT, (1, 2)),
        page_id(KEY, LAYOUT, one, (1, 2)),
        page_id(KEY, LAYOUT, ROOT, (2, 1)),
        page_id(KEY, LAYOUT, ROOT, (1,)),
        page_id(KEY, LAYOUT, ROOT, (1, 2, 0)),
    }
    assert len(others) == 6
    assert one not in others


@pytest.mark.parametrize("token", [-1, 2**32])
def test_what_is_no_token_id_has_no_page(token: int) -> None:
    with pytest.raises(OverflowError):
        page_id(KEY, LAYOUT, ROOT, (token,))


def test_ids_are_a_chain_with_a_partial_page_at_its_end() -> None:
    first = page_id(KEY, LAYOUT, ROOT, (1, 2))
    second = page_id(KEY, LAYOUT, first, (3, 4))
    third = page_id(KEY, LAYOUT, second, (5,))
    assert page_ids(KEY, LAYOUT, (1, 2, 3, 4, 5), 2) == (first, second, third)
    assert page_ids(KEY, LAYOUT, (1, 2, 3, 4), 2) == (first, second)
    assert page_ids(KEY, LAYOUT, (3, 4), 2, parent=first) == (second,)
    assert page_ids(KEY, LAYOUT, (), 2) == ()


def test_the_same_page_after_another_prefix_is_another_page() -> None:
    """F16: a prefix is found whole or not at all."""
    assert page_ids(KEY, LAYOUT, (1, 2, 3, 4), 2)[1] != page_ids(KEY, LAYOUT, (1, 9, 3, 4), 2)[1]
