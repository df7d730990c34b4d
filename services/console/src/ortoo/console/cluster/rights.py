"""The permissions of the user of a page, so that pages leave out the actions that the cluster would refuse."""

from dataclasses import dataclass

from ortoo.client import Admin
from ortoo.console.cluster.partial import ask


@dataclass(frozen=True, slots=True)
class Rights:
    """The permissions of a user, for the topic or group of a page."""

    administer: bool
    """Change topics, groups and processes."""
    send: bool
    """Send to the topic."""
    consume: bool
    """Consume for the group, which includes the replay of its dead letters."""


EVERYTHING = Rights(administer=True, send=True, consume=True)
NOTHING = Rights(administer=False, send=False, consume=False)


async def rights_on(admin: Admin, name: str) -> Rights:
    """The rights of the user of `admin` on the topic and the group `name`; on none for an empty name.

    Everything if the snode does not tell: a refused action names its reason. Errors: Forbidden when the caller has to
    sign in.
    """
    names = (name,) if name else ()
    found = (await ask(admin.users.describe_access(names, names))).value
    if found is None or found.admin:
        return EVERYTHING
    return Rights(
        administer=False,
        send=any(one.publish for one in found.topics),
        consume=any(one.subscribe for one in found.groups),
    )
