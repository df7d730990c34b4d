"""Due deletions that are no longer reported, although an enode may not have carried them out."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Add the table of these deletions. Those that were forgotten before are not known."""
    op.create_table(
        "unconfirmed_deletions",
        sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("due_at_ms", sa.BigInteger, nullable=False, index=True),
    )
