"""The settings of running processes with their origins, and the history of changes."""

import asyncio

from starlette.responses import Response

from ortoo.client import ProcessSettings
from ortoo.common.errors import Invalid
from ortoo.console.cluster.partial import ask
from ortoo.console.web.visit import Page, Visit

ROLES = ("namesrv", "enode", "snode")


async def show(visit: Visit) -> Response:
    """The settings of the processes of one role: those that differ from the defaults, or all."""
    role, everything = visit.query("role") or "snode", bool(visit.query("all"))
    if role not in ROLES:
        raise Invalid(f"{role[:40]!r}; expected namesrv, enode or snode", field="role")
    found, history = await asyncio.gather(
        visit.admin.operations.list_settings(role), ask(visit.admin.operations.list_setting_changes(role))
    )
    return visit.page(
        "settings.html",
        title="Settings",
        commands=(("settings", "get", role), ("settings", "history", role)),
        role=role,
        roles=ROLES,
        everything=everything,
        processes=[(one, shown_settings(one, everything=everything)) for one in found],
        history=history,
    )


def shown_settings(process: ProcessSettings, *, everything: bool) -> list[object]:
    """The settings of a process that the page shows."""
    return [one for one in process.settings if everything or one.origin != "default" or one.at_next_start is not None]


PAGES = (Page("/settings", show),)
