"""One page of a list of topics or groups by name, and the deleted ones that can be restored."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from ortoo.console.cluster.partial import Answer, ask
from ortoo.console.web.names import name_before
from ortoo.console.web.rendering import query_of
from ortoo.console.web.visit import Visit

PAGE_NAMES = 100
DELETED_SHOWN = 50


class Named(Protocol):
    """A topic or a group."""

    @property
    def name(self) -> str:
        """Its name."""


N = TypeVar("N", bound=Named)


async def read_page(visit: Visit, listing: Callable[..., Awaitable[list[N]]]) -> tuple[list[N], dict[str, Any]]:
    """The names of the page that the address selects, and the values of the template. `listing` reads some names."""
    after, start = visit.query("after"), visit.query("from")
    # The name before the first name with this start, so that the name `start` itself is on the page.
    found = await listing(after=after or name_before(start), limit=PAGE_NAMES + 1)
    shown = found[:PAGE_NAMES]
    base = visit.request.url.path
    following = f"{base}{query_of({'after': shown[-1].name})}" if len(found) > PAGE_NAMES else ""
    return shown, {"base": base, "start": start, "is_first": not after and not start, "next_address": following}


async def read_deleted(listing: Callable[[], Awaitable[list[Any]]], *, is_first: bool) -> dict[str, Any]:
    """The values of the template about deleted topics or groups, which are on the first page alone."""
    deleted: Answer[list[Any]] = await ask(listing()) if is_first else Answer()
    return {"deleted": deleted, "deleted_shown": (deleted.value or [])[:DELETED_SHOWN]}
