"""The generated parts of docs/evidence.md: what stands between markers, and which tests name what."""

from pathlib import Path

import pytest
from tools.evidence import EVIDENCE, REPORTS, NamedTest, named_tests, naming, with_section


def test_a_section_is_replaced_and_nothing_else() -> None:
    document = "head\n<!-- a:begin -->\nold\n<!-- a:end -->\ntail\n"
    assert with_section(document, "a", "new") == "head\n<!-- a:begin -->\nnew\n<!-- a:end -->\ntail\n"


@pytest.mark.parametrize("document", ["", "<!-- a:begin -->", "<!-- a:begin --><!-- a:end -->" * 2])
def test_a_section_without_a_single_place_is_refused(document: str) -> None:
    with pytest.raises(ValueError, match="no single place for 'a'"):
        with_section(document, "a", "new")


def test_a_guard_is_named_by_its_id_or_its_function_and_not_by_a_longer_one() -> None:
    tests = [
        NamedTest("a.py", "by_id", "G1 holds"),
        NamedTest("a.py", "by_function", "g1_capacity()"),
        NamedTest("a.py", "another", "G10, G11, AG1, pg1_x"),
        NamedTest("b.py", "by_its_file", "", "G1 is what this file is about"),
    ]
    assert [test.name for test in naming("G1", tests)] == ["by_id", "by_function", "by_its_file"]


def test_test_functions_are_found_with_their_docstrings(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(
        '"""About F01."""\n\n\ndef test_y() -> None:\n    """F05."""\n'
    )
    (found,) = named_tests(tmp_path)
    assert found.node == "tests/test_x.py::test_y"
    assert "F05" in found.text
    assert found.about == "About F01."


@pytest.mark.parametrize("report", [f"F{row:02d}" for row in (*range(1, 18), 22, 23)])
def test_each_story_of_the_proof_has_a_test_in_the_simulator(report: str) -> None:
    assert report in REPORTS
    tests = [test for test in named_tests() if test.path == "tests/simulation/test_field_reports.py"]
    assert naming(report, tests)


def test_the_document_has_a_place_for_each_part() -> None:
    document = EVIDENCE.read_text()
    for name in ("simulation", "exhaustive", "spin", "ablation", "field-reports"):
        with_section(document, name, "")
