import numpy as np
from numpy.typing import NDArray

def levels() -> list[str]: ...
def open(  # noqa: A001
    pool: NDArray[np.uint8],
    level: str,
    layers: int,
    kv_heads: int,
    head_dim: int,
    page_size: int,
    item_bytes: int,
    threads: int,
    /,
) -> object: ...
def prepare(
    kernel: object, bounds: NDArray[np.int64], ends: NDArray[np.int64], pages: NDArray[np.int64], /
) -> object: ...
def attend(
    plan: object,
    layer: int,
    heads: int,
    scale: float,
    out: int,
    query: int,
    query_head: int,
    query_row: int,
    key: int,
    key_head: int,
    key_row: int,
    value: int,
    value_head: int,
    value_row: int,
    /,
) -> None: ...
