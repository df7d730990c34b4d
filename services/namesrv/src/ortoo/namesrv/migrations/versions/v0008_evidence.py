"""The id of the directory, and the deleted topics."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column for the directory's id, which the next opening sets, and the table of deleted topics."""
    op.add_column("directory", sa.Column("directory_id", sa.String(36), nullable=False, server_default=""))
    op.create_table(
        "deleted_topics",
        sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(127), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("permission", sa.Integer, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("message_type", sa.Integer, nullable=False, server_default="0"),
        sa.Column("publish_order", sa.Text, nullable=False, server_default=""),
        sa.Column("deleted_at_ms", sa.BigInteger, nullable=False),
        sa.Column("due_at_ms", sa.BigInteger, nullable=False),
        sa.Column("is_due", sa.Boolean, nullable=False, server_default=sa.false()),
    )
