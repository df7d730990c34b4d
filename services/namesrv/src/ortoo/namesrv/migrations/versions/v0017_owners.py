"""The groups to which retry topics and dead-letter topics belong."""

import sqlalchemy as sa
from alembic import op

from ortoo.common.groups.group_topics import owner_of_name

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Store the group of each retry topic and dead-letter topic, which was only a part of its name."""
    connection = op.get_bind()
    for name in ("topics", "deleted_topics"):
        op.add_column(name, sa.Column("owner_group", sa.String(127)))
        op.add_column(name, sa.Column("owner_kind", sa.Integer(), server_default="0"))
        table = sa.table(name, *(sa.column(one) for one in ("topic_id", "name", "owner_group", "owner_kind")))
        owned = [
            {"id": topic_id, "of": owner.group, "kind": int(owner.kind)}
            for topic_id, topic in connection.execute(sa.select(table.c.topic_id, table.c.name))
            if (owner := owner_of_name(topic)).kind
        ]
        connection.execute(sa.update(table).values(owner_group="", owner_kind=0))
        here = table.c.topic_id == sa.bindparam("id")
        if owned:
            update = sa.update(table).where(here)
            connection.execute(update.values(owner_group=sa.bindparam("of"), owner_kind=sa.bindparam("kind")), owned)
