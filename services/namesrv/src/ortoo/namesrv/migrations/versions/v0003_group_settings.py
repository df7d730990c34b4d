"""More settings of groups."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add columns for settings of groups; existing groups get the defaults."""
    for column in (
        sa.Column("broadcast_enabled", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("notify_members_changed", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("unacknowledged_bytes_max", sa.BigInteger, nullable=False, server_default=str(64 << 20)),
        sa.Column("attempts_max", sa.Integer, nullable=False, server_default="16"),
    ):
        op.add_column("groups", column)
