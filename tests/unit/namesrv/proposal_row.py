"""The stored proposal of one enode, without a database."""

from dataclasses import dataclass, field

from ortoo.namesrv.decisions.replicas import Proposal


@dataclass
class ProposalRow:
    """One row, and every proposal ever stored in it. It behaves like `catalog.proposals.Proposals`."""

    row: Proposal | None = None
    stored: list[Proposal] = field(default_factory=list)

    def put(self, expected_epoch: int, proposal: Proposal) -> Proposal:
        """Replace the proposal of `expected_epoch` if it is the last and this epoch is larger."""
        if self.row is None or self.row.epoch == expected_epoch < proposal.epoch:
            self.row = proposal
            self.stored.append(proposal)
        return self.row

    async def compare_and_store(self, enode: str, expected_epoch: int, proposal: Proposal) -> Proposal:
        """The proposals, in the form in which name servers read them."""
        return self.put(expected_epoch, proposal)
