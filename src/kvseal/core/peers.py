"""Do two workers mean the same by a page? Asked when they meet, before any traffic (F18)."""

from kvseal.core.ids import short
from kvseal.core.messages import Hello

# In this order, because only the first difference is named. The digest covers what stands before it: it comes
# last, so that it is named only where nothing that an operator could read differs.
_OF_EVERY_PROCESS = (("protocol version", "version"), ("model", "model"))
_OF_A_PAGE = (("page size", "page_size"), ("dtype", "dtype"), ("layout digest", "layout"))


def mismatch(ours: Hello, theirs: Hello) -> str | None:
    """The first field in which two processes do not agree about pages, with both values; None where they
    agree.

    A gateway has no pages: with one, only protocol version and model are compared.
    """
    fields = _OF_EVERY_PROCESS if "gateway" in (ours.role, theirs.role) else _OF_EVERY_PROCESS + _OF_A_PAGE
    for name, field in fields:
        here, there = getattr(ours, field), getattr(theirs, field)
        if here != there:
            return f"{name}: {_shown(here)} here, {_shown(there)} at {theirs.role} {short(theirs.instance)}"
    return None


def _shown(value: object) -> str:
    match value:
        case bytes():
            return value.hex() or "none"
        case str():
            return repr(value)
        case _:
            return str(value)
