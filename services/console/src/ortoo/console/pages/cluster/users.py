"""The users and their permissions, and the last refused calls."""

import asyncio

from starlette.responses import Response

from ortoo.client import AuditEntries
from ortoo.client.admin.users import UserInfo, UserPermissions
from ortoo.console.cluster.partial import Answer, ask
from ortoo.console.web.rendering import query_of
from ortoo.console.web.visit import Page, Visit

PAGE_USERS = 100
REFUSED_SHOWN = 100
GRANTS_SHOWN = 20
"""The number of topics, and of groups, that the row of a user shows."""


async def show(visit: Visit) -> Response:
    """One page of the users, by access key."""
    after = visit.query("after")
    users, permissions, refused = await asyncio.gather(
        ask(visit.admin.users.list()),
        ask(visit.admin.users.list_permissions(after=after, limit=PAGE_USERS + 1)),
        _refused(visit),
    )
    rows = user_rows(users.value or [], permissions.value.users if permissions.value is not None else (), after)
    following = {"after": rows[PAGE_USERS - 1][0] if len(rows) > PAGE_USERS else ""}
    return visit.page(
        "users.html",
        title="Users",
        commands=(("user", "list"), ("user", "permissions"), ("audit", "--refused")),
        users=users,
        permissions=permissions,
        rows=rows[:PAGE_USERS],
        refused=refused,
        grants_shown=GRANTS_SHOWN,
        is_first=not after,
        next_address=visit.link(f"/users{query_of(following)}") if following["after"] else "",
    )


async def _refused(visit: Visit) -> Answer[AuditEntries]:
    return await ask(visit.admin.users.list_audit_entries(refused=True, limit=REFUSED_SHOWN))


def user_rows(
    users: list[UserInfo], permissions: tuple[UserPermissions, ...], after: str
) -> list[tuple[str, UserInfo | None, UserPermissions | None]]:
    """Access key, user and permissions of at most one page and a row, by access key.

    A user without permissions cannot do anything, and an entry of the access file without a user is not used yet.
    """
    stored = {one.access_key: one for one in users if one.access_key > after}
    granted = {one.access_key: one for one in permissions}
    if len(permissions) > PAGE_USERS:  # further permissions are not known yet
        last = permissions[-1].access_key
        stored = {key: one for key, one in stored.items() if key <= last}
    names = sorted(stored.keys() | granted.keys())[: PAGE_USERS + 1]
    return [(name, stored.get(name), granted.get(name)) for name in names]


PAGES = (Page("/users", show),)
