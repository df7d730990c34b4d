"""The list of groups, and the restoring of deleted groups."""

from starlette.responses import Response

from ortoo.console.pages.name_list import read_deleted, read_page
from ortoo.console.web.rendering import path_segment
from ortoo.console.web.visit import Page, Visit


async def show(visit: Visit) -> Response:
    """One page of the groups."""
    groups, values = await read_page(visit, visit.admin.list_groups)
    deleted = await read_deleted(visit.admin.list_deleted_groups, is_first=values["is_first"])
    return visit.page("groups.html", title="Groups", commands=(("group", "list"),), listed=groups, **values, **deleted)


async def restore(visit: Visit) -> Response:
    """Restore a deleted group with its settings and offsets."""
    group = await visit.admin.undelete_group(visit.field("group"))
    return visit.redirect(f"/groups/{path_segment(group.name)}")


PAGES = (Page("/groups", show), Page("/groups/restore", restore, is_action=True))
