"""Stored proposals: one per enode, by compare and set. The table and its replacement in tests behave alike."""

from pathlib import Path

import pytest

from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.catalog.stored_proposals import StoredProposals
from ortoo.namesrv.decisions.replicas import Proposal
from tests.unit.namesrv.decisions.replicas_of_one import ids
from tests.unit.namesrv.proposal_row import ProposalRow

FIRST, SECOND = ids(1, 2)


async def check(stored: StoredProposals | ProposalRow) -> None:
    """Only a caller that has read the last one replaces it, and only with a larger epoch."""
    assert await stored.compare_and_store("e", 7, Proposal(3, FIRST)) == Proposal(3, FIRST), (
        "the first replaces nothing"
    )
    assert await stored.compare_and_store("e", 2, Proposal(4, SECOND)) == Proposal(3, FIRST), (
        "an old epoch replaces nothing"
    )
    assert await stored.compare_and_store("e", 3, Proposal(3, SECOND)) == Proposal(3, FIRST)
    assert await stored.compare_and_store("e", 3, Proposal(2, SECOND)) == Proposal(3, FIRST)
    assert await stored.compare_and_store("e", 3, Proposal(9, SECOND)) == Proposal(9, SECOND)
    assert await stored.compare_and_store("e", 3, Proposal(10, FIRST)) == Proposal(9, SECOND)


@pytest.mark.parametrize("kind", ["table", "row"])
async def test_a_proposal_replaces_the_one_that_was_known(kind: str, tmp_path: Path) -> None:
    """Of two name servers that propose at once, one gets the proposal of the other."""
    if kind == "row":
        await check(ProposalRow())
        return
    catalog = await Catalog.open(f"sqlite:///{tmp_path}/names.db", tmp_path, "names")
    try:
        await check(catalog.proposals)
    finally:
        await catalog.close()
