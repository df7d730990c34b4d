"""The user of a call, available to all code that runs for the call."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

from ortoo.common.errors import Forbidden
from ortoo.snode.policy.access_rules import EVERY_GRANT, READING, Grant


@dataclass(frozen=True, slots=True)
class Principal:
    """The user of a call with the permissions of this user."""

    user: str = ""
    """The access key; empty if no signature is required."""
    is_unrestricted: bool = True
    """True without access control, from a trusted address, or for an admin."""
    grant_on_topic: Callable[[str], Grant] = field(default=lambda _: EVERY_GRANT, compare=False)
    """The caller's permissions on a topic, by the rules at the time of the check. An observer sees every topic."""
    grant_on_group: Callable[[str], Grant] = field(default=lambda _: EVERY_GRANT, compare=False)
    """The same for a group."""
    is_observer: bool = False
    """Whether the user may see the state of every topic and group."""

    def may_send_to(self, topic: str) -> bool:
        """Whether the user may send to a topic."""
        return Grant.PUB in self.grant_on_topic(topic)

    def may_read(self, topic: str) -> bool:
        """Whether the user may read messages of a topic."""
        return bool(self.grant_on_topic(topic) & READING)

    def may_see(self, topic: str) -> bool:
        """Whether an answer for the user may contain the name of a topic and offsets in it."""
        return self.grant_on_topic(topic) is not Grant.DENY

    def owns(self, user: str) -> bool:
        """Whether the user may use an object that belongs to `user`."""
        return self.is_unrestricted or self.user == user

    def check_owner(self, user: str, kind: str, field: str) -> None:
        """Refuse an object that belongs to another user. Errors: Forbidden, without the object's id and owner."""
        if not self.owns(user):
            raise Forbidden(f"this {kind} belongs to another user; use one of your own", field=field)


ANONYMOUS = Principal()
PRINCIPAL: ContextVar[Principal] = ContextVar("principal", default=ANONYMOUS)
"""The user of the current call. Tasks that a call starts inherit this value."""


def owner_at(host: str) -> str:
    """The owner of a session or client that the current call creates: its user, or the caller's `host` without one."""
    return PRINCIPAL.get().user or f"@{host}"
