"""The last calls with which operators changed something."""

from starlette.responses import Response

from ortoo.console.cluster.partial import ask
from ortoo.console.web.visit import Page, Visit

SHOWN_FIRST, SHOWN_MAX = 100, 1_000


async def show(visit: Visit) -> Response:
    """The changes of all snodes, the latest first."""
    count = visit.query_number("count", default=SHOWN_FIRST, maximum=SHOWN_MAX)
    found = await ask(visit.admin.users.list_audit_entries(limit=max(1, count)))
    is_full = found.value is not None and len(found.value.entries) >= count
    return visit.page(
        "audit.html",
        title="Changes",
        commands=(("audit",), ("settings", "history", "snode")),
        found=found,
        more_count=SHOWN_MAX if is_full and count < SHOWN_MAX else 0,
    )


PAGES = (Page("/audit", show),)
