"""The bytes of pages: a sealed pool that peers map read-only, a private pool, batched copies between pools.

::

    prefill process                            decode process
    SourcePool ──descriptor, over a socket──>  MappedPool ──copy_pages──>  PrivatePool
    (memfd, writable here only)                (same memory, read-only)    (anonymous, exported to nobody)
"""

from kvseal.memory.memfd import PoolRefused
from kvseal.memory.native import BACKEND, copy_pages, fill_pages
from kvseal.memory.pools import MappedPool, PageMemory, PrivatePool, SourcePool

__all__ = [
    "BACKEND",
    "MappedPool",
    "PageMemory",
    "PoolRefused",
    "PrivatePool",
    "SourcePool",
    "copy_pages",
    "fill_pages",
]
