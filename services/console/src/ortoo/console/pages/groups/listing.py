"""The list of groups, and the restoring of deleted groups."""

from starlette.responses import Response

from ortoo.client import DeletedGroup
from ortoo.console.cluster.partial import Answer, ask
from ortoo.console.web.names import name_before
from ortoo.console.web.rendering import path_segment, query_of
from ortoo.console.web.visit import Page, Visit

PAGE_GROUPS = 100
DELETED_SHOWN = 50


async def show(visit: Visit) -> Response:
    """One page of the groups."""
    after, start = visit.query("after"), visit.query("from")
    found = await visit.admin.list_groups(after=after or name_before(start), limit=PAGE_GROUPS + 1)
    shown = found[:PAGE_GROUPS]
    following = {"after": shown[-1].name if len(found) > PAGE_GROUPS else ""}
    deleted: Answer[list[DeletedGroup]] = Answer()
    if not after and not start:
        deleted = await ask(visit.admin.list_deleted_groups())
    return visit.page(
        "groups.html",
        title="Groups",
        commands=(("group", "list"),),
        groups=shown,
        deleted=deleted,
        deleted_groups=(deleted.value or [])[:DELETED_SHOWN],
        start=start,
        next_address=f"/groups{query_of(following)}" if len(found) > PAGE_GROUPS else "",
        is_first=not after and not start,
    )


async def restore(visit: Visit) -> Response:
    """Restore a deleted group with its settings and offsets."""
    group = await visit.admin.undelete_group(visit.field("group"))
    return visit.redirect(f"/groups/{path_segment(group.name)}")


PAGES = (Page("/groups", show), Page("/groups/restore", restore, is_action=True))
