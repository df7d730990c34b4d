"""For whom a call runs: known from its signature on, to all that the call begins."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

from ortoo.common.errors import Forbidden


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls."""

    user: str = ""
    """The access key; empty where nobody needs to sign."""
    may_everything: bool = True
    """Without access control, from a trusted address, or as an admin."""
    sends_to: Callable[[str], bool] = field(default=lambda _: True, compare=False)
    """Whether the caller may send to a topic, by the rules as they are when it is asked."""

    def owns(self, user: str) -> bool:
        """Whether what belongs to `user` is the caller's to use."""
        return self.may_everything or self.user == user

    def check_owns(self, user: str, what: str, field: str) -> None:
        """Refuse what another user has opened. Errors: Forbidden, which names neither the id nor its owner."""
        if not self.owns(user):
            raise Forbidden(f"this {what} belongs to another user; use one of your own", field=field)


ANYBODY = Principal()
PRINCIPAL: ContextVar[Principal] = ContextVar("principal", default=ANYBODY)
"""Of the current call; tasks that a call begins have it too."""
