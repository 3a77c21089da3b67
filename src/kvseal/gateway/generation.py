"""One running request as its reader sees it: pieces of text, then one end (G10)."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from kvseal.core.errors import Code
from kvseal.core.messages import Finished, Terminal, Usage
from kvseal.gateway.backend import Stream
from kvseal.gateway.detokenizer import Detokenizer
from kvseal.gateway.forms import Reason
from kvseal.gateway.refusals import Refused
from kvseal.gateway.stop_strings import StopFinder


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is complete."""

    reason: Reason
    usage: Usage


@dataclass(frozen=True, slots=True)
class Reading:
    """How tokens become text. ``hidden`` are tokens that end an answer and are no part of its text."""

    detokenizer: Detokenizer
    stops: StopFinder
    hidden: frozenset[int]
    prompt_tokens: int


class Generation:
    """A stream from the backend, read. Whatever happens, the stream is aborted at most once, and never after
    its end.
    """

    def __init__(self, stream: Stream, reading: Reading) -> None:
        self.request = stream.request
        self._stream = stream
        self._reading = reading
        self._tokens = 0
        self._over = False

    def abort(self, code: Code) -> None:
        """Give up, unless it is over already."""
        if not self._over:
            self._over = True
            self._stream.abort(code)

    async def pieces(self) -> AsyncGenerator[str | Done]:
        """Pieces of text, none of them empty; Done as the last item. Raises Refused where the answer is
        not complete, or is not an answer to this prompt.
        """
        async for item in self._stream:
            if not isinstance(item, tuple):
                self._over = True
                done = self._end(item)
                if rest := self._rest():
                    yield rest
                # A stop string can be complete only with what the detokenizer gave at the end.
                yield Done("stop", done.usage) if self._reading.stops.found() else done
                return
            if text := self._read(item):
                yield text
        raise Refused(Code.INTERNAL_ERROR, "The answer ended without saying how.")

    def _read(self, tokens: Sequence[int]) -> str:
        """The text that may be delivered now; tells the backend where a stop string ended."""
        reading = self._reading
        if reading.stops.found():
            return ""  # tokens that were on their way
        text = ""
        for token in tokens:
            self._tokens += 1
            if token in reading.hidden:
                continue
            text += reading.stops.push(reading.detokenizer.push(token))
            if reading.stops.found():
                self._stream.stop(self._tokens - 1)
                break
        return text

    def _rest(self) -> str:
        reading = self._reading
        if reading.stops.found():
            return ""
        text = reading.stops.push(reading.detokenizer.flush())
        return text if reading.stops.found() else text + reading.stops.flush()

    def _end(self, end: Terminal) -> Done:
        if not isinstance(end, Finished):
            raise Refused.by(end)
        if end.usage.prompt_tokens != self._reading.prompt_tokens:
            # What was answered is not what was asked (F01).
            raise Refused(
                Code.INTEGRITY_CHECK_FAILED,
                f"The answer was made from {end.usage.prompt_tokens} prompt tokens; the prompt has "
                f"{self._reading.prompt_tokens}.",
            )
        return Done(end.reason, end.usage)
