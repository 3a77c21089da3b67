"""Versions as engines, images and package lists write them."""

import pytest

from kvseal.fleet.versions import Span, parse_version, version


def test_versions_are_ordered_as_packages_are() -> None:
    written = [
        "0.5.20.dev1",
        "0.5.20rc1",
        "0.5.20",
        "0.5.20.post1",
        "0.5.21.dev3+gabc",
        "0.5.21",
        "v0.5.22-cu130",
        "0.10.0",
        "1.0",
    ]
    parsed = [version(text) for text in written]
    assert parsed == sorted(parsed)
    assert len(set(parsed)) == len(parsed)


@pytest.mark.parametrize(
    "text", ["latest", "nightly-dev-20260827-20621aa1", "", "5", "v", "sha256:abc", "0.5.x"]
)
def test_names_are_not_versions(text: str) -> None:
    assert parse_version(text) is None


def test_spans_end_where_they_say() -> None:
    before, through, unfixed = Span("0.4", fixed="0.5.21"), Span(None, last="0.5.20"), Span("0.5.21")
    assert "0.5.20.post1" in before
    assert "0.5.21rc1" in before
    assert "0.5.21" not in before
    assert "0.3.6" not in before
    assert "0.5.20" in through
    assert "0.5.20.post1" not in through
    assert "9.0" in unfixed
    assert "latest" not in before
