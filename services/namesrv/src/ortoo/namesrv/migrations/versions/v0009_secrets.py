"""Keys that seal handles, and users' secrets in a form that may be encrypted."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the keys that seal receipt handles, and secrets of users in a form that may be encrypted.

    Existing receipt handles, which have no seal, stay valid for now. Existing secrets stay plain text until a name
    server has an encryption key.
    """
    op.create_table(
        "handle_keys",
        sa.Column("key_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("kept_secret", sa.Text, nullable=False),
    )
    op.add_column("directory", sa.Column("unsigned_handles", sa.Boolean, nullable=False, server_default=sa.false()))
    directory = sa.table("directory", sa.column("unsigned_handles", sa.Boolean))
    op.execute(sa.update(directory).values(unsigned_handles=True))
    op.add_column("users", sa.Column("kept_secret", sa.Text, nullable=False, server_default=""))
    op.execute("UPDATE users SET kept_secret = 'plain:' || secret_key")
    op.drop_column("users", "secret_key")
