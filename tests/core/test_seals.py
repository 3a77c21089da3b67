"""Seals: any other byte, any other id, another seal (G5)."""

import numpy as np
import pytest
import xxhash

from kvseal.core.ids import PageId
from kvseal.core.seals import seal_of

ID = PageId(bytes(range(16)))
PAGE = np.arange(256, dtype=np.uint8)


def test_a_seal_is_xxh3_over_all_bytes_seeded_with_the_id() -> None:
    seed = int.from_bytes(bytes(range(8)), "little")
    assert seal_of(PAGE, ID) == xxhash.xxh3_128_digest(PAGE.tobytes(), seed)
    assert len(seal_of(PAGE, ID)) == 16


def test_seals_are_the_same_in_every_process() -> None:
    """Two workers of different builds must agree: the value itself is fixed."""
    assert seal_of(PAGE, ID).hex() == "7da2a630ece1a73cba6cc0e9c0fc6dc5"


@pytest.mark.parametrize("at", [0, 1, 127, 255])
def test_one_flipped_bit_changes_the_seal(at: int) -> None:
    page = PAGE.copy()
    page[at] ^= 1
    assert seal_of(page, ID) != seal_of(PAGE, ID)


@pytest.mark.parametrize("at", range(8))
def test_another_id_changes_the_seal_of_the_same_bytes(at: int) -> None:
    other = bytearray(ID)
    other[at] ^= 1
    assert seal_of(PAGE, PageId(bytes(other))) != seal_of(PAGE, ID)


def test_a_row_of_a_pool_is_sealed_in_place() -> None:
    pool = np.stack([PAGE, PAGE[::-1]])
    assert seal_of(pool[0], ID) == seal_of(PAGE, ID)
    assert seal_of(pool[1], ID) != seal_of(PAGE, ID)
