"""Users with the secrets that sign requests. They are read when a signature is verified, and are not watched."""

import re
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from ortoo.common.errors import Invalid, NotFound, Overloaded
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.encryption import Encryption

USERS_MAX = 10_000
SECRET_LENGTH_MIN, SECRET_LENGTH_MAX = 6, 255
_ACCESS_KEY = re.compile(r"[a-zA-Z0-9_.@-]{1,127}\Z")


@dataclass(frozen=True, slots=True)
class User:
    """A user who signs requests."""

    access_key: str
    secret_key: str
    enabled: bool
    created_at_ms: int

    def __repr__(self) -> str:
        return f"User({self.access_key!r}, enabled={self.enabled})"


class Users:
    """Reads and changes the users in one open transaction."""

    def __init__(self, connection: sa.Connection, encryption: Encryption) -> None:
        self._connection = connection
        self._encryption = encryption

    def put(self, access_key: str, secret_key: str, *, enabled: bool | None, now_ms: int) -> User:
        """Create or change a user. An empty `secret_key` and an `enabled` of None keep the stored values.

        Errors: Invalid, Overloaded if there are too many users.
        """
        existing = self._find(access_key)
        if enabled is None:
            enabled = existing is None or existing.enabled
        if not secret_key and existing is not None:
            secret_key = existing.secret_key
        if not secret_key:
            raise Invalid(
                f"user {access_key} does not exist; a new user needs a secret of {SECRET_LENGTH_MIN} to "
                f"{SECRET_LENGTH_MAX} characters",
                field="secret_key",
            )
        if not SECRET_LENGTH_MIN <= len(secret_key) <= SECRET_LENGTH_MAX:
            raise Invalid(
                f"the secret has {len(secret_key)} characters; give {SECRET_LENGTH_MIN} to {SECRET_LENGTH_MAX}",
                field="secret_key",
            )
        if existing is None and (count := self.count()) >= USERS_MAX:
            raise Overloaded(f"there are {count} users, the maximum; delete unused users")
        user = User(access_key, secret_key, enabled, now_ms if existing is None else existing.created_at_ms)
        kept = self._encryption.encrypt(access_key, secret_key)
        if existing is None:
            row = tables.row_of(tables.users, user, kept_secret=kept)
            self._connection.execute(sa.insert(tables.users).values(row))
        else:
            changed = sa.update(tables.users).where(tables.users.c.access_key == access_key)
            self._connection.execute(changed.values(kept_secret=kept, enabled=enabled))
        return user

    def get(self, access_key: str) -> User:
        """The user with this access key. Errors: Invalid, NotFound."""
        user = self._find(access_key)
        if user is None:
            raise NotFound(
                f"there is no user {access_key!r}; `ortoo user list` shows all users, `ortoo user put` creates one",
                field="access_key",
            )
        return user

    def delete(self, access_key: str) -> None:
        """Remove a user. Errors: Invalid, NotFound."""
        self.get(access_key)
        self._connection.execute(sa.delete(tables.users).where(tables.users.c.access_key == access_key))

    def count(self) -> int:
        """The number of users."""
        count: int = self._connection.execute(sa.select(sa.func.count()).select_from(tables.users)).scalar_one()
        return count

    def all(self) -> list[User]:
        """All users, sorted by access key."""
        rows = self._connection.execute(sa.select(tables.users).order_by(tables.users.c.access_key))
        return [self._user(row) for row in rows]

    def _find(self, access_key: str) -> User | None:
        if not _ACCESS_KEY.match(access_key):
            raise Invalid(f"{access_key[:200]!r}; give 1 to 127 of letters, digits and _ - . @", field="access_key")
        row = self._connection.execute(
            sa.select(tables.users).where(tables.users.c.access_key == access_key)
        ).one_or_none()
        return None if row is None else self._user(row)

    def _user(self, row: sa.Row[Any]) -> User:
        secret_key = self._encryption.decrypt(row.access_key, row.kept_secret)
        return User(row.access_key, secret_key, row.enabled, row.created_at_ms)
