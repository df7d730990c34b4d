"""The order of a topic's queues for producers."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the column for a topic's publish order; existing topics have none."""
    op.add_column("topics", sa.Column("publish_order", sa.Text, nullable=False, server_default=""))
