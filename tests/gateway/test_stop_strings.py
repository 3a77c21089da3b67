"""Stop strings across any cut of the text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kvseal.gateway.stop_strings import StopFinder

_STOPS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=4)
_PIECES = st.lists(st.text("abc", max_size=5), max_size=12)


def delivered(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    finder = StopFinder(stops)
    text = "".join(finder.push(piece) for piece in pieces)
    return text + finder.flush(), finder.found()


def plain(stops: list[str], text: str) -> tuple[str, bool]:
    """The same by definition: the stop string that is complete first, and the longest of those."""
    for end in range(1, len(text) + 1):
        if starts := [end - len(stop) for stop in stops if text[:end].endswith(stop)]:
            return text[: min(starts)], True
    return text, False


@settings(deadline=None)
@given(_STOPS, _PIECES)
def test_the_cut_of_the_text_makes_no_difference(stops: list[str], pieces: list[str]) -> None:
    assert delivered(stops, pieces) == plain(stops, "".join(pieces))


@settings(deadline=None)
@given(_STOPS, _PIECES)
def test_holds_back_no_more_than_could_be_a_beginning(stops: list[str], pieces: list[str]) -> None:
    finder = StopFinder(stops)
    text = out = ""
    for piece in pieces:
        out += finder.push(piece)
        text += piece
        if finder.found():
            return
        held = text[len(out) :]
        assert not held or any(stop.startswith(held) for stop in stops)


def test_nothing_comes_after_a_stop_string() -> None:
    finder = StopFinder(["END"])
    assert finder.push("one E") == "one "
    assert finder.push("ND two") == ""
    assert finder.found()
    assert finder.push("three") == ""
    assert finder.flush() == ""
