"""Page contents that differ in every page, seed and position, and that two processes can make alike."""

import numpy as np
from numpy.typing import NDArray


def pattern(pages: int, page_bytes: int, seed: int) -> NDArray[np.uint8]:
    """uint8 [pages, page_bytes], ``page_bytes`` a multiple of 8; about 1 GB/s."""
    words = page_bytes // 8
    mixed = np.arange(pages * words, dtype=np.uint64).reshape(pages, words)
    mixed += np.uint64((seed + 1) << 40)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return mixed.view(np.uint8)
