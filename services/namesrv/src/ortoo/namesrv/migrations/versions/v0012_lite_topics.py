"""The lifetime of lite topics without messages, and lite topics that belong to one group member."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add columns for the lifetime and ownership of lite topics.

    Existing lite topics have an unlimited lifetime and belong to all members of a group.
    """
    for table in ("topics", "deleted_topics"):
        op.add_column(table, sa.Column("lite_ttl_ms", sa.BigInteger, nullable=False, server_default="0"))
    for table in ("groups", "deleted_groups"):
        op.add_column(table, sa.Column("lite_exclusive", sa.Boolean, nullable=False, server_default=sa.false()))
