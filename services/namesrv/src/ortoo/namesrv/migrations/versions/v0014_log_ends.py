"""The log end of each enode without other replicas."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the number of the start that reported last, and the durable end of its log; 0 = none has reported."""
    for name in ("log_start", "log_end"):
        op.add_column("stores", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
