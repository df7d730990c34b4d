"""The answer to an address without a page."""

from starlette.responses import Response

from ortoo.console.web.visit import Page, Visit


async def show(visit: Visit) -> Response:
    """Say that there is no such page."""
    return visit.page(
        "error.html", title="Not found", status=404, message="There is no page at this address.", remedy=""
    )


PAGE = Page("/", show)
