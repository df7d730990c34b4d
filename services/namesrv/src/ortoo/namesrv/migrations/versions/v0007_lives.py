"""Group settings for retries, messages in flight and expired messages."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add columns for settings of groups; existing groups get the defaults."""
    for column in (
        sa.Column("retry", sa.String(1_024), nullable=False, server_default="classic"),
        sa.Column("in_flight_max", sa.Integer, nullable=False, server_default="0"),
        sa.Column("park_expired", sa.Boolean, nullable=False, server_default=sa.false()),
    ):
        op.add_column("groups", column)
