"""Proposals of name servers with one database have unique epochs, whatever replicas report and when."""

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from ortoo.namesrv.decisions.proposals import ProposalState, next_epoch, next_proposal
from ortoo.namesrv.decisions.replicas import LogTail, Proposal, ReplicaReport, ReplicaSets
from tests.unit.namesrv.decisions.replicas_of_one import ids, report
from tests.unit.namesrv.proposal_row import ProposalRow

NUMBERS = st.integers(1, 3)
REPORTS = st.builds(
    lambda number, voters, epoch, end, silent, leading, able, asked, above: report(
        number,
        voters=voters,
        epoch=epoch,
        tail=LogTail(min(epoch, 4), end),
        is_leader_silent=silent,
        is_leading=leading and not silent,
        is_electable=able,
        suggested_leader=ids(asked)[0] if asked else None,
        suggested_above_epoch=above if asked else 0,
    ),
    NUMBERS,
    st.sampled_from([2, 3, 3, 3]),
    st.integers(0, 6),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.sampled_from([True, True, True, False]),
    st.integers(0, 3),
    st.integers(0, 9),
)


@dataclass
class NameServer:
    """The state of one name server."""

    members: ReplicaSets = field(default_factory=lambda: ReplicaSets(lease_s=3.0))
    standing: ProposalState = ProposalState()

    def hear(self, one: ReplicaReport, now_s: float) -> Proposal | None:
        """Store a report; returns the proposal that follows."""
        return next_proposal(self.members.update(one, now_s), self.standing)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("report"), st.integers(0, 2), REPORTS),
        st.tuples(st.just("late"), st.integers(0, 2), st.integers(0, 30)),
        st.tuples(st.just("read"), st.integers(0, 2), st.none()),
        st.tuples(st.just("restart"), st.integers(0, 2), st.none()),
        st.tuples(st.just("wait"), st.just(0), st.floats(0.1, 4.0)),
        st.tuples(st.just("store"), st.integers(0, 2), st.none()),
    ),
    max_size=60,
)


@given(STEPS)
def test_epochs_are_unique_and_grow(steps: list[tuple[str, int, object]]) -> None:
    """Reports may be late and duplicate. Name servers restart, and decide and store at different times."""
    database, servers = ProposalRow(), [NameServer() for _ in range(3)]
    said: list[ReplicaReport] = []
    decided: dict[int, tuple[int, Proposal]] = {}
    now_s = 100.0
    for kind, number, what in steps:
        server = servers[number]
        if kind == "wait":
            assert isinstance(what, float)
            now_s += what
            for one in servers:
                one.members.expire(now_s)
        elif kind == "read":
            server.standing = server.standing.with_stored(database.row, now_s)
        elif kind == "restart":
            servers[number] = NameServer()
            decided.pop(number, None)
        elif kind == "store" and number in decided:
            expected, proposal = decided.pop(number)
            server.standing = server.standing.with_stored(database.put(expected, proposal), now_s)
        elif kind in ("report", "late"):
            if isinstance(what, ReplicaReport):
                said.append(what)
            elif said:
                assert isinstance(what, int)
                what = said[what % len(said)]
            if isinstance(what, ReplicaReport) and (proposal_now := server.hear(what, now_s)):
                decided[number] = (server.standing.stored_epoch, proposal_now)
    epochs = [one.epoch for one in database.stored]
    assert epochs == sorted(set(epochs))


@given(st.lists(REPORTS, min_size=1, max_size=20), st.integers(0, 9), st.integers(0, 9))
def test_a_proposal_is_above_everything_known(reports: list[ReplicaReport], remembered: int, stored: int) -> None:
    """Also when the database is older than the replicas' votes; and it names a voter that can lead."""
    server, leader = NameServer(), ids(1)[0]
    server.standing = replace(ProposalState(Proposal(remembered, leader)), stored_epoch=stored)
    for one in reports:
        found = server.hear(one, 0.0)
        known = server.members.sets["e"]
        if found is not None:
            named = known.reports[found.leader].report
            assert named.is_electable
            assert found.epoch == next_epoch(known, server.standing) > max(remembered, stored, named.epoch)
            assert all(found.epoch > other.report.epoch for other in known.reports.values())
