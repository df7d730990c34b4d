"""Folding changes into a single table."""

from typing import Any

from ortoo.enode.changes.kinds import Change, TopicGone
from ortoo.enode.state.table import Table


def fold(table: Table[Any], change: Change) -> None:
    """Fold one change; one that does not concern the table has no effect."""
    if (method := table.FOLDS.get(type(change))) is not None:
        method(table, change)
    elif isinstance(change, TopicGone):
        table.drop_topic(change.topic_id)
