"""The error for an operator when a leader lacks frames that this disk knows to be committed."""

from ortoo.common.errors import DataLoss
from ortoo.enode.replication.protocol.events import Contradicted


def contradiction(found: Contradicted, epoch: int) -> DataLoss:
    """The error with which this replica stops, because the leader's log lacks frames that are committed here."""
    return DataLoss(
        f"the leader of epoch {epoch}, replica {found.leader.replica.number}, lacks committed frames: its log differs "
        f"from this one at position {found.end}. This disk has the log committed up to {found.committed}. Disks of "
        "the set were emptied or restored from an older copy. Nothing was truncated here. Stop the other replicas "
        "and compare their logs with this one: `ortoo-enode elect DIR --lose` shows where each ends. Then continue "
        "with the longest (`--apply`), or empty this folder to accept the loss"
    )
