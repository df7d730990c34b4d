"""The registered store of each enode."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Create the table of registered stores; each enode gets the first store with which it registers."""
    op.create_table(
        "stores",
        sa.Column("enode", sa.String(63), primary_key=True),
        sa.Column("store_id", sa.String(255), nullable=False),
        sa.Column("replicas", sa.Text, nullable=False, server_default=""),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("accepted", sa.String(255), nullable=False, server_default=""),
    )
