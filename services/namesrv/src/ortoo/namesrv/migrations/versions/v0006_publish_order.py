"""The order in which producers are given the queues of a topic."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Topics that are there have none, as before."""
    op.add_column("topics", sa.Column("publish_order", sa.Text, nullable=False, server_default=""))
