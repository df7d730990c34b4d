"""Folding changes into one table, as the state does into all."""

from typing import Any

from ortoo.enode.changes.all import Change, TopicGone
from ortoo.enode.state.table import Table


def fold(table: Table[Any], change: Change) -> None:
    """Fold one change in; one that does not concern the table does nothing."""
    if (method := table.FOLDS.get(type(change))) is not None:
        method(table, change)
    elif isinstance(change, TopicGone):
        table.drop_topic(change.topic_id)
