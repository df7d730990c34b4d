"""The parents of lite topics."""

import sqlalchemy as sa
from alembic import op

from ortoo.common.groups.group_topics import parent_of_topic

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Store the parent of each lite topic, which was only a part of its name."""
    connection = op.get_bind()
    for name in ("topics", "deleted_topics"):
        op.add_column(name, sa.Column("parent", sa.String(127)))
        table = sa.table(name, *(sa.column(one) for one in ("topic_id", "name", "parent")))
        parents = {
            topic_id: parent
            for topic_id, topic in connection.execute(sa.select(table.c.topic_id, table.c.name))
            if (parent := parent_of_topic(topic)) is not None
        }
        connection.execute(sa.update(table).values(parent=""))
        here = table.c.topic_id == sa.bindparam("id")
        if parents:
            rows = [{"id": topic_id, "of": parent} for topic_id, parent in parents.items()]
            connection.execute(sa.update(table).where(here).values(parent=sa.bindparam("of")), rows)
