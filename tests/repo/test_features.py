"""The table of features is correct."""

from tests.repo.features import PAGE, STATES, citing, features, rows_wanted
from tests.repo.tree import ROOT


def test_every_row_is_there_once() -> None:
    """All acceptance rows of consumers, in order, each with a state that the page explains."""
    found = features((ROOT / PAGE).read_text())
    assert [one.row for one in found] == rows_wanted()
    assert {one.state for one in found} <= set(STATES)


def test_what_is_said_to_be_there_is_checked_by_a_test_that_cites_it() -> None:
    """Each named test exists and cites its row; a row without a test has a remark."""
    tests = citing()
    wrong = [
        f"{one.row}: {name}"
        for one in features((ROOT / PAGE).read_text())
        for name in one.tests
        if name not in tests.get(one.row, ())
    ]
    assert wrong == []
    for one in features((ROOT / PAGE).read_text()):
        assert one.tests or one.state != "yes", f"{one.row} is marked as available, and no test checks it"
        assert one.tests or len(one.last) > 10, f"{one.row} needs a test or a remark"
