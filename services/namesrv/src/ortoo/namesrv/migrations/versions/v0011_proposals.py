"""The proposed leaders of enodes."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Create the table of proposed leaders."""
    op.create_table(
        "proposals",
        sa.Column("enode", sa.String(63), primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("disk", sa.String(255), nullable=False),
    )
