"""The log of an enode without other replicas never becomes shorter."""

import pytest

from ortoo.common.cluster.refused import OTHER_STORE_FIELDS
from ortoo.common.errors import Conflict, Invalid
from ortoo.namesrv.decisions.known_stores import EnodeLog, KnownStore
from ortoo.namesrv.decisions.replicas import ReplicaId


@pytest.mark.parametrize("opened_end", [1_000, 1_064])
def test_a_start_that_finds_the_whole_log_may_serve(opened_end: int) -> None:
    """Its log ends where it was durable, or behind that position."""
    EnodeLog(8, opened_end, 2_000).check_end("e", 7, 1_000)


def test_a_start_that_finds_less_is_refused_with_the_remedies() -> None:
    """Also when its log has meanwhile grown beyond the known end. Its enode accepts no messages."""
    with pytest.raises(Conflict, match=r"position 1000, .* at position 936.*elect DIR --lose --apply") as refused:
        EnodeLog(8, 936, 2_000).check_end("e", 7, 1_000)
    assert refused.value.field in OTHER_STORE_FIELDS


def test_the_start_that_reported_last_renews_its_lease() -> None:
    """Its log ended before its own later reports when it was opened."""
    EnodeLog(7, 100, 2_000).check_end("e", 7, 1_000)


@pytest.mark.parametrize("numbers", [(0, 1, 2), (1 << 63, 1, 2), (1, 2, 1), (1, 1, 1 << 63)])
def test_positions_that_no_log_has_are_refused(numbers: tuple[int, int, int]) -> None:
    """The error names the field."""
    with pytest.raises(Invalid) as refused:
        EnodeLog(*numbers).check()
    assert refused.value.field == "log"


def test_another_store_of_the_enode_has_another_log() -> None:
    """A restored store may have a shorter log. A change of the replicas, or a permission, is no other log."""
    known = KnownStore("e", "first", (), 1).with_log(EnodeLog(7, 0, 1_000))
    assert (known.log_start, known.log_end, known.version) == (7, 1_000, 2)
    for kept in (known.changed("first", (ReplicaId(1, "disk"),)), known.accepting("second")):
        assert (kept.log_start, kept.log_end) == (7, 1_000)
    for other in (known.changed("second", ()), known.forgotten()):
        assert (other.log_start, other.log_end) == (0, 0)
