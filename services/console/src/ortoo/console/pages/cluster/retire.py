"""Drain an enode, resume sends to it, and retire it, with the effects of each."""

import asyncio

from starlette.responses import HTMLResponse, Response

from ortoo.client import Admin
from ortoo.client.admin.enodes.draining import (
    EnodeTopics,
    RemainingMessages,
    drain_enode,
    fill_enode,
    list_remaining,
    topics_on,
)
from ortoo.common.errors import Unavailable
from ortoo.common.machine.printable import printable_line
from ortoo.console.cluster.partial import ask
from ortoo.console.web.rendering import path_segment
from ortoo.console.web.visit import Page, Visit

COUNTING_S = 4.0
"""Limit of the time in which the messages that are left are counted."""
NAMES_SHOWN = 50


async def show(visit: Visit) -> Response:
    """The page with the effects of each action."""
    name = visit.name()
    deleted, here, cluster = await asyncio.gather(
        ask(visit.admin.list_deleted_topics()), topics_on(visit.admin, name), visit.admin.describe_cluster()
    )
    (enode,) = [one for one in cluster.enodes if one.name == name]
    remaining = await ask(_count_remaining(visit.admin, here)) if visit.query("count") else None
    undrained, blocking = here.undrained, here.sole_topics
    lost = [one.topic.name for one in deleted.value or () if {it.enode for it in one.topic.placements} == {name}]
    sole = [one.name for one in here.topics if len(one.placements) == 1]
    return visit.page(
        "retire.html",
        title=f"Drain or retire enode {printable_line(name)}",
        commands=(("enode", "drain", name, "--wait"), ("enode", "fill", name), ("enode", "forget", name)),
        enode=enode,
        base=visit.link(f"/enodes/{path_segment(name)}"),
        topic_count=len(here.topics),
        undrained=_shown(undrained),
        undrained_count=len(undrained),
        drained_count=len(here.drained),
        blocking=_shown(blocking),
        blocking_count=len(blocking),
        remaining=remaining,
        sole=_shown(sole),
        sole_count=len(sole),
        lost_deleted=_shown(lost),
        loses=bool(sole or lost or undrained),
    )


def _shown(names: object) -> list[str]:
    """The first names, so that a page stays short."""
    return list(names)[:NAMES_SHOWN]  # type: ignore[call-overload,no-any-return]


async def count_left(visit: Visit) -> Response:
    """The part of the page with the messages that are left. It takes two calls for each topic."""
    here = await topics_on(visit.admin, visit.name())
    remaining = await ask(_count_remaining(visit.admin, here))
    return HTMLResponse(visit.fragment("retire_left.html", remaining=remaining))


async def _count_remaining(admin: Admin, here: EnodeTopics) -> list[RemainingMessages]:
    try:
        async with asyncio.timeout(COUNTING_S):
            return await list_remaining(admin, here.enode, here.topics)
    except TimeoutError:
        raise Unavailable(
            f"not counted within {COUNTING_S:.0f} s; run `ortoo enode drain {here.enode} --wait`", field="enode"
        ) from None


async def drain(visit: Visit) -> Response:
    """Stop sends to the enode, topic by topic."""
    name = visit.name()
    visit.check_confirmed(name, "enode to drain it")
    await drain_enode(visit.admin, await topics_on(visit.admin, name))
    return _back(visit)


async def fill(visit: Visit) -> Response:
    """Resume sends to the enode."""
    await fill_enode(visit.admin, await topics_on(visit.admin, visit.name()))
    return _back(visit)


async def retire(visit: Visit) -> Response:
    """Remove a stopped enode from all topics. Messages that only it has are lost only with the field `lose`."""
    name = visit.name()
    visit.check_confirmed(name, "enode to retire it")
    await visit.admin.replicas.forget(name, lose=visit.field("lose") == "yes")
    return visit.redirect("/enodes")


def _back(visit: Visit) -> Response:
    return visit.redirect(f"/enodes/{path_segment(visit.name())}/retire")


PAGES = (
    Page("/enodes/{name}/retire", show),
    Page("/enodes/{name}/retire/left", count_left),
    Page("/enodes/{name}/drain", drain, is_action=True),
    Page("/enodes/{name}/fill", fill, is_action=True),
    Page("/enodes/{name}/retire/apply", retire, is_action=True),
)
