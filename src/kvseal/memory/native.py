"""Batched copying and filling of pages, in C where the extension was built and in numpy where it was not.

Both back ends keep one contract: everything is checked before any byte moves, errors name the page and the
limit, what was checked is what is used even if another thread changes the lists meanwhile, and other
threads run while bytes move. The functions are documented in :mod:`kvseal.memory.fallback`.
"""

from typing import Final, Literal

try:
    from kvseal.memory._native import copy_pages, fill_pages
except ImportError:  # no compiler where kvseal was installed: slower for small pages, otherwise the same
    from kvseal.memory.fallback import copy_pages, fill_pages

BACKEND: Final[Literal["c", "numpy"]] = "numpy" if copy_pages.__module__ == "kvseal.memory.fallback" else "c"

__all__ = ["BACKEND", "copy_pages", "fill_pages"]
