"""`ortoo apply` and `ortoo export`: topics and groups declared in a file."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ortoo.cli.terminal.completion import SYSTEM_PREFIX
from ortoo.cli.terminal.output import CommandOutput
from ortoo.common.errors import Invalid

if TYPE_CHECKING:
    from ortoo.client import Client, GroupChanges, GroupInfo, TopicInfo

TOPIC_KEYS: Mapping[str, type] = {"name": str, "queues": int, "permission": str, "type": str, "lite_ttl_ms": int}


class GroupSetting(NamedTuple):
    """A setting of a group: an option of `ortoo group update`, and a key of a file."""

    field: str
    """Its name in `GroupInfo` and `GroupChanges`."""
    kind: type
    help: str


GROUP_SETTINGS: Mapping[str, GroupSetting] = {
    "consume": GroupSetting("consume_enabled", bool, "Whether its members may consume."),
    "broadcast": GroupSetting("broadcast_enabled", bool, "Whether its members may consume by broadcast."),
    "notify": GroupSetting("notify_members_changed", bool, "Whether members are notified when members join or leave."),
    "slow_messages": GroupSetting(
        "slow_consumer_threshold_messages", int, "Lag in messages above which a member is slow."
    ),
    "slow_grace_ms": GroupSetting(
        "slow_consumer_grace_ms", int, "Time without an acknowledgement before a slow member is evicted."
    ),
    "unacknowledged_bytes": GroupSetting(
        "unacknowledged_bytes_max", int, "Largest number of unacknowledged bytes of a push session; 0 = 64 MiB."
    ),
    "attempts": GroupSetting("attempts_max", int, "Attempts before a message is parked; 0 = 16."),
    "retry": GroupSetting(
        "retry", str, "Retry policy: classic (10 s to 2 h, as RocketMQ), exponential:1s:10m, or list:1s,5s,30s."
    ),
    "in_flight": GroupSetting(
        "in_flight_max", int, "Largest number of leased messages of a topic on each enode; 0 = 10,000 per queue."
    ),
    "park_expired": GroupSetting("park_expired", bool, "Whether expired messages are parked."),
    "lite_exclusive": GroupSetting("lite_exclusive", bool, "Whether a lite topic is for one member only."),
}
"""Each setting of a group by its name in files; the option has - in place of _."""
GROUP_KEYS: Mapping[str, type] = {"name": str} | {key: one.kind for key, one in GROUP_SETTINGS.items()}
LITE = "lite"
"""The type of topics whose lite topics may have a time to live."""
Entry = dict[str, Any]


class DeclaredChange(NamedTuple):
    """One topic or group to create or change."""

    kind: str
    name: str
    is_new: bool
    desired: Entry
    """The new values; for an existing topic or group only those that differ."""
    previous: Entry

    def __str__(self) -> str:
        values = (
            f"{key} {self.previous[key]!r} → {value!r}" if key in self.previous else f"{key} {value!r}"
            for key, value in self.desired.items()
        )
        return f"{'+' if self.is_new else '~'} {self.kind} {self.name}: {', '.join(values) or 'with defaults'}"


async def apply(
    mq: "Client",
    file: Annotated[Path, typer.Option("-f", "--file", help="TOML as `ortoo export` prints it.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
) -> CommandOutput:
    """Create and change topics and groups as declared in a file. Topics and groups outside the file stay unchanged."""
    changes = plan_changes(read_declarations(file), await _read_existing(mq))
    for change in changes if not dry_run else ():
        await (_make_topic if change.kind == "topic" else _make_group)(mq, change)
    verb = "would change" if dry_run else "changed"
    lines = [*map(str, changes), f"{verb} {len(changes)} of them" if changes else "everything is as the file says"]
    return CommandOutput([{"change": str(one), **one._asdict()} for one in changes], tuple(lines))


async def export(mq: "Client") -> CommandOutput:
    """Print all topics and groups as TOML for `ortoo apply`."""
    present = await _read_existing(mq)
    return CommandOutput(present, as_toml(present))


def read_declarations(file: Path) -> dict[str, list[Entry]]:
    """Read the topics and groups that a TOML file declares. Errors: Invalid, with the entry and the key."""
    try:
        values = tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{file} is not valid TOML: {error}", field="file") from error
    for kind in values.keys() - {"topic", "group"}:
        raise Invalid(f"{file} has {kind!r}; expected [[topic]] and [[group]]", field=kind)
    declared = {"topic": values.get("topic", []), "group": values.get("group", [])}
    for kind, keys in (("topic", TOPIC_KEYS), ("group", GROUP_KEYS)):
        names = set[str]()
        for number, entry in enumerate(declared[kind]):
            _check(entry, keys, f"{kind}[{number}]")
            if entry["name"] in names:
                raise Invalid(f"{kind} {entry['name']} is declared twice", field=f"{kind}[{number}].name")
            names.add(entry["name"])
    return declared


def plan_changes(declared: Mapping[str, list[Entry]], present: Mapping[str, list[Entry]]) -> list[DeclaredChange]:
    """The topics, then the groups, to create or change so that the cluster has the `declared` values.

    `present` has the current values. Errors: Invalid for a value that cannot be changed.
    """
    changes = []
    for kind in ("topic", "group"):
        existing = {entry["name"]: entry for entry in present[kind]}
        for entry in declared[kind]:
            previous = existing.get(entry["name"])
            desired = {
                key: value for key, value in entry.items() if key != "name" and (previous or {}).get(key) != value
            }
            if previous is None:
                changes.append(DeclaredChange(kind, entry["name"], True, desired, {}))
                continue
            if kind == "topic":
                _check_changeable(entry, previous)
            if desired:
                changes.append(
                    DeclaredChange(kind, entry["name"], False, desired, {key: previous[key] for key in desired})
                )
    return changes


def as_toml(present: Mapping[str, list[Entry]]) -> str:
    """Write topics and groups as TOML."""
    return "\n".join(_lines(present)).rstrip()


def _lines(present: Mapping[str, list[Entry]]) -> Iterator[str]:
    for kind in ("topic", "group"):
        for entry in present[kind]:
            yield f"[[{kind}]]"
            for key, value in entry.items():
                yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
            yield ""


def _check(entry: object, keys: Mapping[str, type], where: str) -> None:
    if not isinstance(entry, dict) or not entry.get("name"):
        raise Invalid("missing name; expected the name of the topic or group", field=f"{where}.name")
    for key, value in entry.items():
        if key not in keys:
            raise Invalid(f"unknown key; expected one of {', '.join(keys)}", field=f"{where}.{key}")
        if type(value) is not keys[key]:
            raise Invalid(f"{value!r}; expected {keys[key].__name__}", field=f"{where}.{key}")


def _check_changeable(entry: Entry, existing: Entry) -> None:
    if entry.get("type", existing["type"]) != existing["type"]:
        raise Invalid(
            f"topic {existing['name']} has the type {existing['type']}, which cannot be changed", field="type"
        )
    if entry.get("queues", existing["queues"]) < existing["queues"]:
        raise Invalid(
            f"topic {existing['name']} has {existing['queues']} queues on each enode; expected more", field="queues"
        )


async def _read_existing(mq: "Client") -> dict[str, list[Entry]]:
    topics = [_topic(one) for one in await mq.admin.list_topics() if not one.name.startswith(SYSTEM_PREFIX)]
    groups = [_group(one) for one in await mq.admin.list_groups() if not one.auto_created]
    return {"topic": topics, "group": groups}


def _topic(topic: "TopicInfo") -> Entry:
    queues = max((one.read_queue_count for one in topic.placements), default=0)
    kind = {"type": topic.message_type} | ({"lite_ttl_ms": topic.lite_ttl_ms} if topic.message_type == LITE else {})
    return {"name": topic.name, "queues": queues, "permission": topic.permission, **kind}


def _group(group: "GroupInfo") -> Entry:
    return {"name": group.name, **{key: getattr(group, one.field) for key, one in GROUP_SETTINGS.items()}}


async def _make_topic(mq: "Client", change: DeclaredChange) -> None:
    queues, permission = change.desired.get("queues", 0), change.desired.get("permission", "")
    if change.is_new:
        kind = change.desired.get("type", "any")
        await mq.admin.create_topic(
            change.name,
            queue_count=queues,
            permission=permission or "read_write",
            message_type=kind,
            lite_ttl_ms=change.desired.get("lite_ttl_ms", 0),
        )
    else:
        await mq.admin.update_topic(
            change.name,
            read_queue_count=queues,
            write_queue_count=queues,
            permission=permission,
            lite_ttl_ms=change.desired.get("lite_ttl_ms"),
        )


async def _make_group(mq: "Client", change: DeclaredChange) -> None:
    await mq.admin.groups.update(change.name, **group_changes(change.desired))


def group_changes(values: Entry) -> "GroupChanges":
    """The arguments of `GroupAdmin.update` for settings that have their names in files."""
    changes: Any = {GROUP_SETTINGS[key].field: value for key, value in values.items()}
    return changes  # type: ignore[no-any-return]
