"""The stored proposal of one enode, without a database."""

from dataclasses import dataclass, field

from ortoo.namesrv.decisions.members import Proposal


@dataclass
class ProposalRow:
    """One row, and every proposal that was ever stored in it. It is held to what `catalog.proposals.Proposals` does."""

    row: Proposal | None = None
    stored: list[Proposal] = field(default_factory=list)

    def put(self, expected_epoch: int, proposal: Proposal) -> Proposal:
        """Store it in place of the one of `expected_epoch`, if that is the last and this is above; what is stored."""
        if self.row is None or self.row.epoch == expected_epoch < proposal.epoch:
            self.row = proposal
            self.stored.append(proposal)
        return self.row

    async def propose(self, enode: str, expected_epoch: int, proposal: Proposal) -> Proposal:
        """The same, as name servers ask for it."""
        return self.put(expected_epoch, proposal)
