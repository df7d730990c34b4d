"""Alter a group: attempts, retries, limits, slow members and expired messages."""

from starlette.responses import Response

from ortoo.console.pages.alteration import AlterableSetting, Alteration, Change, Kind, Value
from ortoo.console.web.rendering import path_segment
from ortoo.console.web.visit import Page, Visit

BYTES_MAX = (1 << 64) - 1
OPTIONS = {
    "attempts_max": "--attempts",
    "retry": "--retry",
    "in_flight_max": "--in-flight",
    "unacknowledged_bytes_max": "--unacknowledged-bytes",
    "slow_consumer_threshold_messages": "--slow-messages",
    "slow_consumer_grace_ms": "--slow-grace-ms",
}
SWITCHES = {
    "park_expired": "park-expired",
    "broadcast_enabled": "broadcast",
    "notify_members_changed": "notify",
    "lite_exclusive": "lite-exclusive",
}


async def alter(visit: Visit) -> Response:
    """Make the changes of the preview."""
    name = visit.name()
    await visit.admin.groups.update(name, **await ALTERATION.previewed_values(visit))
    return visit.redirect(f"/groups/{path_segment(name)}")


async def _settings(visit: Visit) -> list[AlterableSetting]:
    """The settings of a group that can be changed."""
    group = (await visit.admin.groups.describe(visit.name())).group
    numbers = (
        ("attempts_max", "Attempts before a message is parked, 0 for 16", (1 << 32) - 1),
        ("in_flight_max", "Messages of a topic in flight on each enode, 0 for 10,000 in each queue", (1 << 32) - 1),
        ("unacknowledged_bytes_max", "Unacknowledged bytes of a push session, 0 for 64 MiB", BYTES_MAX),
        ("slow_consumer_threshold_messages", "Lag above which a member is slow, 0 for 1,024", (1 << 32) - 1),
        ("slow_consumer_grace_ms", "Time until a slow member is evicted, ms", (1 << 32) - 1),
    )
    switches = (
        ("park_expired", "Park expired messages"),
        ("broadcast_enabled", "Members may consume as broadcast"),
        ("notify_members_changed", "Notify members of changes of the membership"),
        ("lite_exclusive", "Each lite topic has one member"),
    )
    return [
        *(
            AlterableSetting(name, label, getattr(group, name), Kind.NUMBER, maximum=maximum)
            for name, label, maximum in numbers
        ),
        AlterableSetting("retry", "Retries: classic, exponential:1s:10m or list:1s,5s,30s", group.retry, Kind.TEXT),
        *(AlterableSetting(name, label, getattr(group, name), Kind.SWITCH) for name, label in switches),
    ]


def _warning(setting: AlterableSetting, value: Value) -> str:
    """The reason why a change is dangerous; empty if it is not."""
    match setting.name, value:
        case "attempts_max", int() if 0 < value < int(setting.now or 0):
            return "Messages with at least this number of failed attempts are parked at their next failure."
        case "slow_consumer_grace_ms", 0:
            return "A large lag alone is then enough to evict a member."
        case "broadcast_enabled", False:
            return "Members that consume as broadcast are refused."
    return ""


def _words(change: Change) -> tuple[str, ...]:
    name = change.setting.name
    if name in SWITCHES:
        return (f"--{'' if change.value else 'no-'}{SWITCHES[name]}",)
    return OPTIONS[name], change.shown


ALTERATION = Alteration("group", _settings, _warning, _words)
PAGES = (Page("/groups/{name}/alter", ALTERATION.show), Page("/groups/{name}/alter/apply", alter, is_action=True))
