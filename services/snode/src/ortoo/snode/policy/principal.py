"""The user of a call, known from its signature on to everything that the call starts."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

from ortoo.common.errors import Forbidden


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller."""

    user: str = ""
    """The access key; empty if no signature is required."""
    is_unrestricted: bool = True
    """True without access control, from a trusted address, or for an admin."""
    may_send_to: Callable[[str], bool] = field(default=lambda _: True, compare=False)
    """Whether the caller may send to a topic, by the rules at the time of the check."""

    def owns(self, user: str) -> bool:
        """Whether the caller may use an object of `user`."""
        return self.is_unrestricted or self.user == user

    def check_owner(self, user: str, kind: str, field: str) -> None:
        """Refuse an object of another user. Errors: Forbidden, which names neither the id nor its owner."""
        if not self.owns(user):
            raise Forbidden(f"this {kind} belongs to another user; use one of your own", field=field)


ANONYMOUS = Principal()
PRINCIPAL: ContextVar[Principal] = ContextVar("principal", default=ANONYMOUS)
"""The caller of the current call; tasks that a call starts inherit it."""
