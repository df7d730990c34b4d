"""The message type that a topic accepts."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column for a topic's message type; existing topics still accept every type."""
    op.add_column("topics", sa.Column("message_type", sa.Integer, nullable=False, server_default="0"))
