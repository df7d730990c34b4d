"""The placements of topics as sets that topics share."""

import itertools
from operator import attrgetter

import sqlalchemy as sa
from alembic import op

from ortoo.common.directory.topic import Placement
from ortoo.namesrv.catalog.tables import ID64
from ortoo.namesrv.decisions.placements import PlacementSet

revision = "0015"
down_revision = "0014"
TOPICS_IN_STATEMENT = 500
VIEW = """
    CREATE VIEW placements AS
    SELECT t.topic_id, s.enode, s.read_queue_count, s.write_queue_count
    FROM placement_sets s JOIN (
        SELECT topic_id, placement_set_id FROM topics
        UNION ALL SELECT topic_id, placement_set_id FROM deleted_topics WHERE NOT is_due
    ) t ON t.placement_set_id = s.set_id
"""
"""The former table, so that running name servers of the version before can read the directory."""


def upgrade() -> None:
    """Move the rows of `placements` to sets. A topic names its set by the hash of its content."""
    connection = op.get_bind()
    sets = op.create_table(
        "placement_sets",
        sa.Column("set_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("enode", sa.String(63), primary_key=True),
        sa.Column("read_queue_count", sa.Integer, nullable=False),
        sa.Column("write_queue_count", sa.Integer, nullable=False),
    )
    former = sa.table(
        "placements",
        sa.column("topic_id", sa.BigInteger),
        *(sa.column(name) for name in ("enode", "read_queue_count", "write_queue_count")),
    )
    topics_of: dict[PlacementSet, list[int]] = {}
    rows = connection.execute(sa.select(former).order_by(former.c.topic_id))
    for topic_id, placed in itertools.groupby(rows, attrgetter("topic_id")):
        ones = (Placement(row.enode, row.read_queue_count, row.write_queue_count) for row in placed)
        placements = PlacementSet.of(tuple(sorted(ones, key=attrgetter("enode"))))
        topics_of.setdefault(placements, []).append(topic_id)
    for name in ("topics", "deleted_topics"):
        op.add_column(name, sa.Column("placement_set_id", sa.BigInteger, nullable=False, server_default="0"))
    for placements, topic_ids in topics_of.items():
        set_id = ID64.written(placements.set_id)
        connection.execute(
            sa.insert(sets),
            [
                {"set_id": set_id, "enode": one.enode}
                | {"read_queue_count": one.read_queue_count, "write_queue_count": one.write_queue_count}
                for one in placements
            ],
        )
        for name in ("topics", "deleted_topics"):
            table = sa.table(name, sa.column("topic_id", sa.BigInteger), sa.column("placement_set_id", sa.BigInteger))
            for first in range(0, len(topic_ids), TOPICS_IN_STATEMENT):
                here = table.c.topic_id.in_(topic_ids[first : first + TOPICS_IN_STATEMENT])
                connection.execute(sa.update(table).where(here).values(placement_set_id=set_id))
    op.drop_table("placements")
    if connection.dialect.name == "postgresql":
        op.execute(VIEW)
        # Without a default, these name servers cannot delete or restore a topic, which would lose its placements.
        for name in ("topics", "deleted_topics"):
            op.alter_column(name, "placement_set_id", server_default=None)
