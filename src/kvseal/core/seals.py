"""The seal: a digest of a page's bytes that means something only together with the page's id (G5)."""

import numpy as np
import xxhash
from numpy.typing import NDArray

from kvseal.core.ids import PageId, Seal


def seal_of(page: NDArray[np.uint8], identity: PageId) -> Seal:
    """XXH3-128 of all bytes of a page (uint8, contiguous), seeded with the first eight bytes of its id.

    Detects accidents, not forgery: a worker that lies could compute it as well. Whole pages only, so that
    every tensor that a token leaves behind is covered, whatever the attention family.
    """
    return Seal(xxhash.xxh3_128_digest(page.data, int.from_bytes(identity[:8], "little")))
