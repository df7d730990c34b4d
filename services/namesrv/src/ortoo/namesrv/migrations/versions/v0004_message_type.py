"""What kind of messages a topic takes."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Topics that are there take every kind, as before."""
    op.add_column("topics", sa.Column("message_type", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    """Forget the kinds."""
    op.drop_column("topics", "message_type")
