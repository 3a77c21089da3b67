"""What happened, readable, one line an event. Off unless asked for: a run that fails is run again with it."""

from collections.abc import Callable
from zlib import crc32

from kvseal.core.effects import Record
from kvseal.core.ids import InstanceId
from kvseal.core.messages import (
    Abort,
    AnyMessage,
    Ended,
    Generate,
    Manifest,
    Prefill,
    PrefillEnded,
    Tokens,
)


class Trace:
    """Lines of the form ``time  who  what``, and a fingerprint over all of them: two equal runs have equal
    ones.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.fingerprint = 0

    def note(self, now_s: float, who: str, what: str) -> None:
        """Add a line."""
        line = f"{now_s:9.4f}  {who:<11} {what}"
        self.fingerprint = crc32(line.encode(), self.fingerprint)
        self.lines.append(line)

    def text(self, last: int | None = None) -> str:
        """All lines, or the last so many."""
        return "\n".join(self.lines if last is None else self.lines[-last:])


def told(message: AnyMessage, name: Callable[[InstanceId], str]) -> str:
    """A message in a few words."""
    kind = type(message).__name__
    match message:
        case Generate():
            what = f"{len(message.prompt)} tokens, {message.max_tokens} wanted, for {message.tenant}"
        case Prefill():
            what = f"{len(message.tokens)} tokens, first {message.skip_pages} pages not needed"
        case Manifest():
            what = "pages " + ", ".join(f"{row.ordinal} at {row.place}" for row in message.pages)
        case Tokens():
            what = f"token {message.index}: {', '.join(map(str, message.tokens))}"
        case Ended() | PrefillEnded():
            what = ended(message.end)
        case Abort():
            what = message.code.value
        case _:
            what = ""
    request, attempt = getattr(message, "request", ""), getattr(message, "attempt", None)
    key = f" {request}" + (f"/{attempt}" if attempt is not None else "") if request else ""
    return f"{kind}{key}" + (f" ({what})" if what else "")


def ended(end: object) -> str:
    """A terminal answer in a few words."""
    code = getattr(end, "code", None)
    text = getattr(end, "message", "") or getattr(end, "reason", "")
    return f"{type(end).__name__} {code.value + ', ' if code else ''}{text}"


def recorded(record: Record) -> str:
    """A record in a few words."""
    key = f" {record.key.request}/{record.key.attempt}" if record.key else ""
    return f"record {record.event}{key}: {record.detail}"
