"""Alter a topic: its permission, its queues, its enodes, and the lifetime of its lite topics."""

from starlette.responses import Response

from ortoo.console.cluster.partial import ask
from ortoo.console.pages.alteration import AlterableSetting, Alteration, Change, Kind, Value
from ortoo.console.pages.topics.listing import QUEUES_MAX
from ortoo.console.web.rendering import path_segment
from ortoo.console.web.visit import Page, Visit

PERMISSIONS = ("read_write", "read_only", "write_only", "none")
REFUSED = {
    "read_only": "Sends to the topic are refused.",
    "write_only": "No consumer gets messages of the topic.",
    "none": "Sends to the topic are refused, and no consumer gets its messages.",
}
LITE_TTL_MS_MAX = (1 << 64) - 1
OPTIONS = {
    "permission": "--permission",
    "read_queue_count": "--queues",
    "write_queue_count": "--write-queues",
    "add_enode": "--enode",
    "lite_ttl_ms": "--lite-ttl",
}


async def alter(visit: Visit) -> Response:
    """Make the changes of the preview."""
    name = visit.name()
    values = await ALTERATION.previewed_values(visit)
    if enode := values.pop("add_enode", ""):
        values["add_enodes"] = (enode,)
    await visit.admin.update_topic(name, **values)
    return visit.redirect(f"/topics/{path_segment(name)}")


async def _settings(visit: Visit) -> list[AlterableSetting]:
    """The settings of a topic that can be changed. Without rights on the cluster no enode can be added."""
    topic = (await visit.admin.describe_topic(visit.name())).topic
    placed = {one.enode for one in topic.placements}
    cluster = (await ask(visit.admin.describe_cluster())).value
    others = tuple(one.name for one in cluster.enodes if one.name not in placed) if cluster else ()
    reads = max((one.read_queue_count for one in topic.placements), default=0)
    writes = max((one.write_queue_count for one in topic.placements), default=0)
    found = [
        AlterableSetting("permission", "Permission", topic.permission, Kind.TEXT, PERMISSIONS),
        AlterableSetting("read_queue_count", "Queues on each enode", reads, Kind.NUMBER, maximum=QUEUES_MAX),
        AlterableSetting("write_queue_count", "Of these used by producers", writes, Kind.NUMBER, maximum=QUEUES_MAX),
    ]
    if others:
        found.append(AlterableSetting("add_enode", "Additional enode", "", Kind.TEXT, others))
    if topic.message_type == "lite":
        label = "Lite topics are deleted after this time without a message, ms"
        found.append(AlterableSetting("lite_ttl_ms", label, topic.lite_ttl_ms, Kind.NUMBER, maximum=LITE_TTL_MS_MAX))
    return found


def _warning(setting: AlterableSetting, value: Value) -> str:
    """The reason why a change is dangerous; empty if it is not."""
    match setting.name, value:
        case "permission", str():
            return REFUSED.get(value, "")
        case "read_queue_count", _:
            return "The number of queues cannot be reduced again. Messages of a message group may change their queue."
        case "write_queue_count", _:
            return "Messages of a message group may change their queue, so their order can be lost at that moment."
        case "add_enode", _:
            return "The enode cannot be removed from the topic again, except when it is forgotten."
        case "lite_ttl_ms", _:
            return "Lite topics without a message for this time are deleted with their messages." if value else ""
    return ""


def _words(change: Change) -> tuple[str, ...]:
    return OPTIONS[change.setting.name], change.shown


ALTERATION = Alteration("topic", _settings, _warning, _words)
PAGES = (Page("/topics/{name}/alter", ALTERATION.show), Page("/topics/{name}/alter/apply", alter, is_action=True))
