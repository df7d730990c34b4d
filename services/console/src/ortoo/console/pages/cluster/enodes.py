"""The enodes and their replicas, live: leader, state and lag, and the transfer of leadership."""

import asyncio
from typing import Any

from starlette.responses import HTMLResponse, Response

from ortoo.common.errors import Invalid
from ortoo.console.cluster.partial import ask
from ortoo.console.web.visit import Page, Visit

REPLICA_MAX = 1_000
FREE_LOW = 0.1
"""A smaller share of free space or inodes is marked, as the doctor does."""
FULL_SOON_MS = 3 * 86_400_000
"""A disk that is full within this time is marked, as the doctor does."""


async def show(visit: Visit) -> Response:
    """The page of all enodes."""
    commands = (
        ("cluster",),
        ("enode", "disks"),
        ("enode", "replicas"),
        ("enode", "hand-over", "ENODE", "--to", "REPLICA"),
    )
    return visit.page("enodes.html", title="Enodes", commands=commands, **await _state(visit))


async def refresh(visit: Visit) -> Response:
    """The part of the page that changes, for its regular refresh."""
    return HTMLResponse(visit.fragment("enodes_state.html", **await _state(visit)))


async def _state(visit: Visit) -> dict[str, Any]:
    """The values of the page. Errors: those of the snode."""
    cluster, replica_sets, disks = await asyncio.gather(
        visit.admin.describe_cluster(), ask(visit.admin.replicas.list()), ask(visit.admin.replicas.list_disks())
    )
    return {
        "enodes": cluster.enodes,
        "replica_sets": replica_sets,
        "disks": disks,
        "free_low": FREE_LOW,
        "full_soon_ms": FULL_SOON_MS,
    }


async def hand_over(visit: Visit) -> Response:
    """Transfer the leadership of an enode to the chosen replica."""
    enode, replica = visit.field("enode"), visit.field_number("replica", maximum=REPLICA_MAX)
    if not enode or not replica:
        raise Invalid("missing; choose the enode and the replica that becomes its leader", field="replica")
    await visit.admin.replicas.transfer_leadership(enode, replica)
    return visit.redirect("/enodes")


PAGES = (
    Page("/enodes", show),
    Page("/enodes/state", refresh),
    Page("/enodes/hand-over", hand_over, is_action=True),
)
