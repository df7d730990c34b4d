"""Topics, their placements, groups, and the version of the directory."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables of the directory."""
    op.create_table(
        "directory",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("schema_version", sa.Integer, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "topics",
        sa.Column("name", sa.String(127), primary_key=True),
        sa.Column("topic_id", sa.BigInteger, nullable=False, unique=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("permission", sa.Integer, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "placements",
        sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("enode", sa.String(63), primary_key=True),
        sa.Column("read_queue_count", sa.Integer, nullable=False),
        sa.Column("write_queue_count", sa.Integer, nullable=False),
    )
    op.create_table(
        "groups",
        sa.Column("name", sa.String(120), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("consume_enabled", sa.Boolean, nullable=False),
        sa.Column("slow_consumer_threshold_messages", sa.BigInteger, nullable=False),
        sa.Column("slow_consumer_grace_ms", sa.BigInteger, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    )
