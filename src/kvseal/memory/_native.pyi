import numpy as np
from numpy.typing import NDArray

def copy_pages(
    dst: NDArray[np.uint8],
    src: NDArray[np.uint8],
    dst_pages: NDArray[np.int64],
    src_pages: NDArray[np.int64],
    /,
) -> None: ...
def fill_pages(dst: NDArray[np.uint8], pages: NDArray[np.int64], byte: int, /) -> None: ...
