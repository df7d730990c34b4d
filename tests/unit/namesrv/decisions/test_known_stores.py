"""Another store of an enode needs an operator's permission, and no two sets have one id."""

import pytest

from ortoo.common.errors import Conflict
from ortoo.namesrv.decisions.known_stores import KnownStore, check_lineage, check_store
from ortoo.namesrv.decisions.replicas import ReplicaId, ReplicaReport

ONE, TWO, THREE, FOUR, FIVE = (ReplicaId(number, f"disk-{number}") for number in range(1, 6))
KNOWN = KnownStore("e", "the-set", (ONE, TWO, THREE), 1)


def report(member: ReplicaId, voters: tuple[ReplicaId, ...], *, set_id: str = "the-set") -> ReplicaReport:
    """A replica's report."""
    return ReplicaReport("e", set_id, member, 1, "h:1", "h:2", epoch=9, is_leading=True, voters=voters)


@pytest.mark.parametrize(("known", "made_from"), [(None, ""), (KNOWN, "the-set")])
def test_an_unknown_enode_and_a_store_made_of_the_known_one_may_come(known: KnownStore | None, made_from: str) -> None:
    """The first store of a name is accepted, and one that an operator made of the registered one."""
    check_store(known, "e", "new", made_from)
    check_store(KNOWN, "e", "the-set", "")


@pytest.mark.parametrize("made_from", ["", "another"])
def test_another_store_is_refused_with_the_command_that_accepts_it(made_from: str) -> None:
    """The field distinguishes it from two processes with one name."""
    with pytest.raises(Conflict, match="ortoo enode accept-store e new") as refused:
        check_store(KNOWN, "e", "new", made_from)
    assert refused.value.field == "store_id"


def test_a_set_of_strangers_with_a_known_id_is_refused() -> None:
    """A replica that lost its hard state created it; its epoch rises with each start, so that it would win finally."""
    rival = ReplicaId(1, "made-again")
    with pytest.raises(Conflict, match=r"disk made-again.* is none of them") as refused:
        check_lineage(KNOWN, report(rival, (rival,)))
    assert refused.value.field == "set_id"


@pytest.mark.parametrize(
    ("member", "voters"),
    [(ONE, (ONE, TWO, THREE)), (FOUR, (TWO, THREE, FOUR)), (FOUR, ()), (ONE, (ONE, FOUR, FIVE)), (FIVE, (THREE, FIVE))],
)
def test_a_set_that_changes_its_replicas_one_at_a_time_stays_the_same(
    member: ReplicaId, voters: tuple[ReplicaId, ...]
) -> None:
    """A registered replica, one whose log names a registered one, and an empty disk that waits."""
    check_lineage(KNOWN, report(member, voters))
    check_lineage(None, report(member, voters))
