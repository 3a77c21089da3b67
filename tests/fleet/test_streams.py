"""Files of any size and kind, in flat memory."""

import gzip
from pathlib import Path

import pytest

from kvseal.fleet import streams
from kvseal.fleet.streams import Unreadable, lines_with, read_text

NEEDLES = (b"needle", b"other=")


def found(path: Path) -> list[tuple[int, str]]:
    return [(line.number, line.text) for line in lines_with(str(path), NEEDLES)]


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_only_lines_with_a_needle_are_read_with_their_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "log", b"one\ntwo needle needle other=1\nthree\r\nneedle at the end")
    assert found(path) == [(2, "two needle needle other=1"), (4, "needle at the end")]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
def test_chunk_borders_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(streams, "CHUNK_BYTES", chunk)
    path = write(tmp_path / "log", b"a\nb needle\n\n\nc other=\nd")
    assert found(path) == [(2, "b needle"), (5, "c other=")]


@pytest.mark.parametrize("chunk", [5, 1 << 22])
def test_gzip_is_read_as_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(streams, "CHUNK_BYTES", chunk)
    packed = gzip.compress(b"x\ny needle\n") + gzip.compress(b"z other=\n")
    assert found(write(tmp_path / "log.gz", packed)) == [(2, "y needle"), (3, "z other=")]


def test_cut_gzip_gives_what_came_before_the_cut(tmp_path: Path) -> None:
    packed = gzip.compress(b"a needle\n" + bytes(range(256)) * 200)[:-20]
    lines = lines_with(str(write(tmp_path / "log.gz", packed)), NEEDLES)
    assert next(lines).number == 1
    with pytest.raises(Unreadable) as problem:
        list(lines)
    assert problem.value.code == "damaged"


def test_a_line_without_end_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CHUNK_BYTES", 1024)
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 4096)
    path = write(tmp_path / "log", b"x" * 100_000 + b" needle " + b"y" * 100_000 + b"\nlast needle\n")
    numbers = [(line.number, len(line.text)) for line in lines_with(str(path), NEEDLES)]
    assert {number for number, _ in numbers} == {1, 2}
    assert all(length <= 3 * 4096 for _, length in numbers)


@pytest.mark.parametrize(
    ("name", "code"), [("missing", "cannot-open"), (".", "is-a-directory"), ("a\0b", "cannot-open")]
)
def test_what_cannot_be_opened_is_said(tmp_path: Path, name: str, code: str) -> None:
    with pytest.raises(Unreadable) as problem:
        list(lines_with(f"{tmp_path}/{name}", NEEDLES))
    assert problem.value.code == code


def test_small_texts_are_refused_when_they_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_TEXT_BYTES", 10)
    with pytest.raises(Unreadable, match="too-large"):
        read_text(str(write(tmp_path / "a", b"x" * 11)))
    with pytest.raises(Unreadable, match="binary"):
        read_text(str(write(tmp_path / "b", b"x\0y")))
    assert read_text(str(write(tmp_path / "c", "é".encode("utf-16")))) == "é"


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    path = write(tmp_path / "log", b"needle\n" * 10)
    list(lines_with(str(path), NEEDLES, lambda done, size: told.append((done, size))))
    assert told[-1] == (70, 70)
