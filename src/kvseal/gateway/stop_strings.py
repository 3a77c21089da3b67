"""Finds stop strings in text that comes in pieces."""

from collections.abc import Sequence


class StopFinder:
    """Passes text on until a stop string is complete. What comes out does not depend on how the text was cut.

    The stop string that is complete first wins, and of those that end together the longest. Text that may
    be the beginning of one is held back until that is decided.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(strings)
        self._beginnings = frozenset(s[:length] for s in self._strings for length in range(1, len(s)))
        self._longest = max(map(len, self._strings), default=0)
        self._held = ""
        self._found = False

    def found(self) -> bool:
        """Was a stop string completed?"""
        return self._found

    def push(self, text: str) -> str:
        """The text that may be delivered now. After ``found`` nothing more comes."""
        if not self._strings:
            return text
        if self._found:
            return ""
        text = self._held + text
        if (cut := self._cut(text)) is not None:
            self._found = True
            self._held = ""
            return text[:cut]
        keep = self._undecided(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """The text that was held back, when no more is to come."""
        text, self._held = self._held, ""
        return text

    def _cut(self, text: str) -> int | None:
        """Where the text before the stop string ends."""
        hits = [(at + len(s), at) for s in self._strings if (at := text.find(s)) >= 0]
        return min(hits)[1] if hits else None

    def _undecided(self, text: str) -> int:
        """Length of the longest end of ``text`` that begins a stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            if text[len(text) - length :] in self._beginnings:
                return length
        return 0
