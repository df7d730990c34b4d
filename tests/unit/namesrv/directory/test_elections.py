"""What a name server tells members of its proposals."""

from typing import Any

from ortoo.namesrv.decisions.members import MemberSet, Proposal
from ortoo.namesrv.directory.elections import Elections
from ortoo.testing.time.virtual_clock import VirtualClock
from tests.unit.namesrv.decisions.members_of_one import ids, report

_, SECOND = ids(1, 2)


class Stored:
    """A database that nobody else uses."""

    async def propose(self, enode: str, stored_epoch: int, wanted: Proposal) -> Proposal:
        return wanted


async def test_a_proposal_is_offered_only_while_it_may_win() -> None:
    """A member that alone misses its leader weeks later must not depose it by what was proposed once."""
    clock, stored = VirtualClock(), Stored()
    elections = Elections(stored, lambda members: None, lease_s=3.0, shared=False, clock=clock)  # type: ignore[arg-type]

    async def said(**more: Any) -> MemberSet:
        await elections.report(report(1, is_leading=True))
        await elections.report(report(2, **more))
        return await elections.report(report(3, **more))

    members = await said()
    assert elections.offered(members) is None
    members = await said(is_leader_silent=True)
    assert elections.offered(members) == Proposal(2, SECOND)
    clock.advance(1.0)
    assert elections.offered(await said()) == Proposal(2, SECOND)
    clock.advance(1.0)
    assert elections.offered(await said()) is None
    assert elections.proposal("e") == Proposal(2, SECOND)
