"""Users who sign requests."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table of users."""
    op.create_table(
        "users",
        sa.Column("access_key", sa.String(127), primary_key=True),
        sa.Column("secret_key", sa.String(255), nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    )
