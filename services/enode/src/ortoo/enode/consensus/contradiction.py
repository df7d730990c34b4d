"""What an operator is told when a leader lacks what this disk knows to be committed."""

from ortoo.common.errors import DataLoss
from ortoo.enode.members.driver import Contradicted


def contradiction(found: Contradicted, epoch: int) -> DataLoss:
    """Why this replica ends. It happens only when more disks forgot what they had acknowledged than a set outlives."""
    return DataLoss(
        f"the leader of epoch {epoch}, replica {found.leader.member.number}, lacks what is committed: its log parts "
        f"from this one at position {found.end}, and this disk knows it to be committed up to {found.committed}. Disks "
        "of the set were emptied or put back from an older copy. Nothing was cut here. Stop the other replicas and "
        "compare their logs with this one (`ortoo-enode elect DIR --lose` shows where each ends): go on with the "
        "longest (`--apply`), or empty this folder to accept the loss"
    )
