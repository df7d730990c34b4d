"""Deleted groups that can be restored, and groups that were created automatically."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the table of deleted groups, and a column for automatic creation; existing groups count as declared."""
    op.add_column("groups", sa.Column("by_use", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "deleted_groups",
        sa.Column("name", sa.String(120), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("consume_enabled", sa.Boolean, nullable=False),
        sa.Column("slow_consumer_threshold_messages", sa.BigInteger, nullable=False),
        sa.Column("slow_consumer_grace_ms", sa.BigInteger, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("broadcast_enabled", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("notify_members_changed", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("unacknowledged_bytes_max", sa.BigInteger, nullable=False, server_default=str(64 << 20)),
        sa.Column("attempts_max", sa.Integer, nullable=False, server_default="16"),
        sa.Column("retry", sa.String(1_024), nullable=False, server_default="classic"),
        sa.Column("in_flight_max", sa.Integer, nullable=False, server_default="0"),
        sa.Column("park_expired", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("by_use", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("deleted_at_ms", sa.BigInteger, nullable=False),
        sa.Column("due_at_ms", sa.BigInteger, nullable=False),
        sa.Column("due_version", sa.BigInteger, nullable=False, server_default="0"),
    )
