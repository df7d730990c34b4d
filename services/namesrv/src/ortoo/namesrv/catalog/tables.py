"""The tables of the directory and their rows as values. No SQL here that only one database understands."""

from collections.abc import Iterable

import sqlalchemy as sa

from ortoo.common.groups.retry_policy import RetryPolicy
from ortoo.namesrv.decisions.groups import Group
from ortoo.namesrv.decisions.publish_order import order_of_text
from ortoo.namesrv.decisions.topics import MessageType, Permission, Placement, Topic

SCHEMA_VERSION = 1
"""What databases say that were made before there were migrations."""

metadata = sa.MetaData()

directory = sa.Table(
    "directory",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),  # always 1
    sa.Column("schema_version", sa.Integer, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
)
topics = sa.Table(
    "topics",
    metadata,
    sa.Column("name", sa.String(127), primary_key=True),
    sa.Column("topic_id", sa.BigInteger, nullable=False, unique=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("permission", sa.Integer, nullable=False),
    sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    sa.Column("message_type", sa.Integer, nullable=False, server_default="0"),
    sa.Column("publish_order", sa.Text, nullable=False, server_default=""),
)
placements = sa.Table(
    "placements",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("enode", sa.String(63), primary_key=True),
    sa.Column("read_queue_count", sa.Integer, nullable=False),
    sa.Column("write_queue_count", sa.Integer, nullable=False),
)
groups = sa.Table(
    "groups",
    metadata,
    sa.Column("name", sa.String(120), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("consume_enabled", sa.Boolean, nullable=False),
    sa.Column("slow_consumer_threshold_messages", sa.BigInteger, nullable=False),
    sa.Column("slow_consumer_grace_ms", sa.BigInteger, nullable=False),
    sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    # Since revision 0003.
    sa.Column("broadcast_enabled", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("notify_members_changed", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("unacknowledged_bytes_max", sa.BigInteger, nullable=False, server_default=str(64 << 20)),
    sa.Column("attempts_max", sa.Integer, nullable=False, server_default="16"),
    # Since revision 0007.
    sa.Column("retry", sa.String(1_024), nullable=False, server_default="classic"),
    sa.Column("in_flight_max", sa.Integer, nullable=False, server_default="0"),
    sa.Column("park_expired", sa.Boolean, nullable=False, server_default=sa.false()),
)

rights = sa.Table(
    "rights",
    metadata,
    sa.Column("resource", sa.String(255), primary_key=True),
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("until_ms", sa.BigInteger, nullable=False),
)
users = sa.Table(
    "users",
    metadata,
    sa.Column("access_key", sa.String(127), primary_key=True),
    sa.Column("secret_key", sa.String(255), nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("created_at_ms", sa.BigInteger, nullable=False),
)


def signed(topic_id: int) -> int:
    """A topic id as databases keep it: their 64-bit integers have a sign."""
    return topic_id - (1 << 64) if topic_id >= 1 << 63 else topic_id


def topic_of(row: sa.Row[tuple[object, ...]], placed: Iterable[sa.Row[tuple[object, ...]]]) -> Topic:
    """A topic from its row and those of its placements."""
    found = [Placement(p.enode, p.read_queue_count, p.write_queue_count) for p in placed]
    found.sort(key=lambda placement: placement.enode)
    return Topic(
        row.name,
        row.topic_id % (1 << 64),
        row.version,
        Permission(row.permission),
        tuple(found),
        row.created_at_ms,
        MessageType(row.message_type),
        order_of_text(row.publish_order),
    )


def group_of(row: sa.Row[tuple[object, ...]]) -> Group:
    """A group from its row."""
    return Group(
        row.name,
        row.version,
        row.consume_enabled,
        row.slow_consumer_threshold_messages,
        row.slow_consumer_grace_ms,
        row.created_at_ms,
        row.broadcast_enabled,
        row.notify_members_changed,
        row.unacknowledged_bytes_max,
        row.attempts_max,
        RetryPolicy.read(row.retry),
        row.in_flight_max,
        row.park_expired,
    )
