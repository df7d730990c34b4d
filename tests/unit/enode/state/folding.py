"""Folding changes into a single table."""

from typing import Any

from ortoo.enode.changes.kinds import StateChange, TopicDeleted
from ortoo.enode.state.table import StateTable


def fold(table: StateTable[Any], change: StateChange) -> None:
    """Fold one change; one that does not concern the table has no effect."""
    if (method := table.FOLDS.get(type(change))) is not None:
        method(table, change)
    elif isinstance(change, TopicDeleted):
        table.drop_topic(change.topic_id)
