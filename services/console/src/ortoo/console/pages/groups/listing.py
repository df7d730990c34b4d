"""The list of groups."""

from starlette.responses import Response

from ortoo.console.web.names import name_before
from ortoo.console.web.rendering import query_of
from ortoo.console.web.visit import Page, Visit

PAGE_GROUPS = 100


async def show(visit: Visit) -> Response:
    """One page of the groups."""
    after, start = visit.query("after"), visit.query("from")
    found = await visit.admin.list_groups_page(after or name_before(start), limit=PAGE_GROUPS)
    return visit.page(
        "groups.html",
        title="Groups",
        commands=(("group", "list"),),
        groups=found.groups,
        start=start,
        next_address=f"/groups{query_of({'after': found.next_after})}" if found.next_after else "",
        is_first=not after and not start,
    )


PAGES = (Page("/groups", show),)
