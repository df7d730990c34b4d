"""The proposals that a name server returns to replicas."""

from typing import Any

from ortoo.namesrv.decisions.replicas import Proposal, ReplicaSet
from ortoo.namesrv.directory.elections import Elections
from ortoo.verification.time.virtual_clock import VirtualClock
from tests.unit.namesrv.decisions.replicas_of_one import ids, report
from tests.unit.namesrv.proposal_row import ProposalRow

_, SECOND = ids(1, 2)


async def test_a_proposal_is_offered_only_while_it_may_win() -> None:
    """A replica that alone misses its leader weeks later must not depose it with an old proposal."""
    clock, stored = VirtualClock(), ProposalRow()
    elections = Elections(stored, lambda members: None, lease_s=3.0, shared=False, clock=clock)  # type: ignore[arg-type]

    async def said(**more: Any) -> ReplicaSet:
        await elections.report(report(1, is_leading=True))
        await elections.report(report(2, **more))
        return await elections.report(report(3, **more))

    members = await said()
    assert elections.current_proposal(members) is None
    members = await said(is_leader_silent=True)
    assert elections.current_proposal(members) == Proposal(2, SECOND)
    clock.advance(1.0)
    assert elections.current_proposal(await said()) == Proposal(2, SECOND)
    clock.advance(1.0)
    assert elections.current_proposal(await said()) is None
    assert elections.proposal("e") == Proposal(2, SECOND)


async def test_a_proposal_that_has_won_is_offered_no_more() -> None:
    """A leader that transferred its leadership within its time would compete with its successor."""
    elections = Elections(ProposalRow(), lambda members: None, lease_s=3.0, shared=False, clock=VirtualClock())  # type: ignore[arg-type]
    for number in (1, 3):
        await elections.report(report(number, epoch=1, is_leader_silent=True))
    members = await elections.report(report(2, epoch=1, is_leader_silent=True))
    proposal = elections.current_proposal(members)
    assert proposal is not None
    leads: dict[str, Any] = {"epoch": proposal.epoch, "is_leading": True}
    await elections.report(report(proposal.leader.number, **leads))
    let_go = await elections.report(report(proposal.leader.number, epoch=proposal.epoch))
    assert elections.proposal("e") == proposal
    assert elections.current_proposal(let_go) is None


async def test_a_set_that_is_founded_again_inherits_no_failed_turns() -> None:
    """Failed proposals of the previous set give this one no additional time, even with the same disks."""
    clock, stored = VirtualClock(), ProposalRow()
    elections = Elections(stored, lambda members: None, lease_s=3.0, shared=False, clock=clock)  # type: ignore[arg-type]
    for incarnation, set_id in enumerate(("set", "another"), 1):
        for number in (2, 3):
            await elections.report(report(number, set_id=set_id, incarnation=incarnation))
        members = await elections.report(report(1, set_id=set_id, incarnation=incarnation))
        patience_s = []
        for _ in range(4):
            proposal, since_s = await elections.elect("e", 1, ""), clock.monotonic_s()
            while elections.current_proposal(members) == proposal:
                clock.advance(0.5)
            patience_s.append(clock.monotonic_s() - since_s)
        assert patience_s == [1.5, 1.5, 3.0, 6.0]
        clock.advance(3.0)
        await elections.refresh()
