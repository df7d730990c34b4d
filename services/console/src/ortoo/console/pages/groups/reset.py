"""Move the offsets of a group in a topic: a preview for each queue, and then exactly what the preview shows."""

from typing import Any

from starlette.responses import Response

from ortoo.client import Queue, QueueOffset
from ortoo.common.errors import Invalid
from ortoo.common.machine.printable import printable_line
from ortoo.console.cluster.partial import Answer, ask
from ortoo.console.pages.messages.find import time_ms
from ortoo.console.web.forms import whole_number
from ortoo.console.web.rendering import path_segment
from ortoo.console.web.visit import Page, Visit

TARGETS = ("begin", "end", "time", "offset")


async def show(visit: Visit) -> Response:
    """The form without a preselected target, and the preview when a target is given."""
    group, topic, target = visit.name(), visit.query("topic"), visit.query("target")
    described = await ask(visit.admin.groups.describe(group))
    members = described.value.members if described.value else ()
    preview: Answer[list[QueueOffset]] = Answer()
    if topic and target:
        force = bool(visit.query("force"))
        resetting = visit.admin.groups.reset_offsets(group, topic, **_target(visit), force=force, dry_run=True)
        preview = await ask(resetting)
    changes = [one for one in preview.value or () if one.offset != one.previous]
    words = ("reset-offset", group, topic or "TOPIC", "--to", visit.query("value") or target or "TIME")
    return visit.page(
        "reset.html",
        title=f"Reset offsets of {printable_line(group)}",
        commands=((*words, "--dry-run"), *((words,) if topic and target else ())),
        group=group,
        topic=topic,
        topics=[one.topic for one in described.value.progress] if described.value else [],
        target=target,
        value=visit.query("value"),
        force=bool(visit.query("force")),
        targets=TARGETS,
        preview=preview,
        rows=preview.value or (),
        changes=changes,
        refused=[one for one in preview.value or () if one.refused_offset >= 0],
        skipped=sum(max(0, one.offset - max(0, one.previous)) for one in changes),
        repeated=sum(max(0, one.previous - one.offset) for one in changes),
        members=len([one for one in members if topic in one.topics]),
    )


async def reset(visit: Visit) -> Response:
    """Move the offsets to those of the preview."""
    group, topic = visit.name(), visit.field("topic")
    visit.check_confirmed(group, "group to move its offsets")
    offsets = read_offsets(topic, visit.field("offsets"))
    await visit.admin.groups.reset_offsets(group, topic, offsets=offsets, force=True)
    return visit.redirect(f"/groups/{path_segment(group)}")


def read_offsets(topic: str, text: str) -> dict[Queue, int]:
    """The offsets of a preview, one line ENODE QUEUE OFFSET for each queue. Errors: Invalid."""
    found = {}
    for line in text.splitlines():
        parts = line.split(" ")
        if len(parts) != 3:
            raise Invalid(f"{line[:60]!r}; expected ENODE QUEUE OFFSET; open the preview again", field="offsets")
        queue_id = whole_number(parts[1], "offsets", maximum=(1 << 32) - 1)
        found[Queue(topic, parts[0], queue_id)] = whole_number(parts[2], "offsets")
    if not found:
        raise Invalid("empty; open the preview again", field="offsets")
    return found


def _target(visit: Visit) -> dict[str, Any]:
    """The target in the form of `reset_offsets`. Errors: Invalid."""
    match visit.query("target"):
        case "begin":
            return {"offset": 0}
        case "end":
            return {"time_ms": -1}
        case "offset":
            return {"offset": visit.query_number("value")}
        case "time" if at_ms := time_ms(visit.query("value"), "value"):
            return {"time_ms": at_ms}
    raise Invalid("expected begin, end, an offset, or a time such as 2026-01-31T12:00:00", field="target")


PAGES = (Page("/groups/{name}/reset", show), Page("/groups/{name}/reset/apply", reset, is_action=True))
