"""Reading files of any size and kind: plain, gzip, binary noise, half lines; flat memory.

A log is searched for a handful of fixed byte strings, chunk by chunk; only lines that hold one are ever
decoded. So a gigabyte costs seconds, and a line without end costs `MAX_LINE_BYTES`.
"""

import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

CHUNK_BYTES: Final = 4 << 20
MAX_LINE_BYTES: Final = 1 << 20
MAX_TEXT_BYTES: Final = 8 << 20
"""Commands, manifests, package lists and environments are small; larger ones are refused."""

Progress = Callable[[int, int], None]
"""Called with bytes read from the file so far and the file's size (0: unknown)."""


class Line(NamedTuple):
    number: int
    text: str


class Unreadable(Exception):
    """The file cannot be read. `code` names a note."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


def _open(path: str) -> tuple[BinaryIO, int]:
    if path == "-":
        return sys.stdin.buffer, 0
    try:
        if Path(path).is_dir():
            raise Unreadable("is-a-directory")
        return Path(path).open("rb"), Path(path).stat().st_size
    except OSError as problem:
        raise Unreadable("cannot-open", problem.strerror or type(problem).__name__) from problem
    except ValueError as problem:  # a NUL in the name
        raise Unreadable("cannot-open", "not a file name") from problem


def _chunks(path: str, progress: Progress | None) -> Iterator[bytes]:
    raw, size = _open(path)
    with closing(raw) if path != "-" else nullcontext():
        done = 0
        gunzip: _Gunzip | None = None
        while True:
            try:
                chunk = raw.read(CHUNK_BYTES)
            except OSError as problem:
                raise Unreadable("damaged", problem.strerror or "cannot be read on") from problem
            if done == 0 and chunk.startswith(b"\x1f\x8b"):
                gunzip = _Gunzip()
            done += len(chunk)
            if progress is not None:
                progress(done, size)
            if gunzip is None:
                if not chunk:
                    return
                yield chunk
                continue
            yield from gunzip.feed(chunk)
            if not chunk:
                return


class _Gunzip:
    """Decompresses in pieces, so that of a cut file everything before the cut is read."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)
        self._fresh = True

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Pieces of at most `CHUNK_BYTES`. Empty `data` is the end. Raises Unreadable after the last good
        piece.
        """
        if not data and not (self._inner.eof or self._fresh):
            raise Unreadable("damaged", "the compressed file ends too early")
        while data:
            if self._inner.eof:  # files may be several gzip members in a row
                self._inner = zlib.decompressobj(wbits=31)
            try:
                piece = self._inner.decompress(data, CHUNK_BYTES)
            except zlib.error as problem:
                raise Unreadable("damaged", str(problem)[:100]) from problem
            self._fresh = False
            if piece:
                yield piece
            data = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail


def lines_with(path: str, needles: Sequence[bytes], progress: Progress | None = None) -> Iterator[Line]:
    """Lines of a file that hold one of `needles`, numbered from 1. Raises Unreadable, after what could be
    read.
    """
    carry, number = b"", 1
    trouble: Unreadable | None = None
    chunks = _chunks(path, progress)
    while True:
        try:
            chunk = next(chunks, b"")
        except Unreadable as problem:
            trouble, chunk = problem, b""
        data = carry + chunk
        cut = data.rfind(b"\n") + 1 if chunk else len(data)
        if cut == 0 and len(data) > MAX_LINE_BYTES:
            cut = len(data)  # a line without end: search what is there, keep nothing of it
        yield from _search(data, cut, needles, number)
        number += data.count(b"\n", 0, cut)
        carry = data[cut:]
        if not chunk:
            break
    if trouble is not None:
        raise trouble


def _search(data: bytes, end: int, needles: Sequence[bytes], first_number: int) -> Iterator[Line]:
    starts: dict[int, None] = {}
    for needle in needles:
        position = data.find(needle, 0, end)
        while position >= 0:
            starts[data.rfind(b"\n", 0, position) + 1] = None
            line_end = data.find(b"\n", position, end)
            position = data.find(needle, line_end, end) if line_end >= 0 else -1
    counted, number = 0, first_number
    for start in sorted(starts):
        number += data.count(b"\n", counted, start)
        counted = start
        stop = data.find(b"\n", start, end)
        stop = end if stop < 0 else stop
        # Of a monstrous line the part around the first needle matters, not its beginning.
        if stop - start > MAX_LINE_BYTES:
            hit = min(p for p in (data.find(needle, start, stop) for needle in needles) if p >= 0)
            yield _line(number, data[max(start, hit - 4096) : min(stop, hit + MAX_LINE_BYTES)])
        else:
            yield _line(number, data[start:stop])


def _line(number: int, data: bytes) -> Line:
    return Line(number, data.decode("utf-8", "replace").rstrip("\r"))


def read_text(path: str) -> str:
    """A small text file. Raises Unreadable, also for binary content."""
    total, parts = 0, []
    for chunk in _chunks(path, None):
        total += len(chunk)
        if total > MAX_TEXT_BYTES:
            raise Unreadable("too-large", f"> {MAX_TEXT_BYTES >> 20} MiB")
        parts.append(chunk)
    data = b"".join(parts)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    if b"\0" in data[:65536]:
        raise Unreadable("binary")
    return data.decode("utf-8-sig", "replace")
