"""`ortoo apply` and `ortoo export`: topics, groups, users and schedules declared in a file."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ortoo.cli.cluster.declared_schedules import (
    SCHEDULE_KEYS,
    canonical_schedule,
    existing_schedules,
    exported_schedule,
    put_schedule,
)
from ortoo.cli.cluster.users import secret_of
from ortoo.cli.terminal.completion import SYSTEM_PREFIX
from ortoo.cli.terminal.output import CommandOutput
from ortoo.common.errors import Invalid

if TYPE_CHECKING:
    from ortoo.client import Client, GroupChanges, GroupInfo, TopicInfo, UserInfo

TOPIC_KEYS: Mapping[str, type] = {
    "name": str,
    "queues": int,
    "write_queues": int,
    "permission": str,
    "type": str,
    "lite_ttl_ms": int,
    "enodes": list,
    "publish_order": list,
}
USER_KEYS: Mapping[str, type] = {"access_key": str, "enabled": bool, "secret_env": str}


class GroupSetting(NamedTuple):
    """A setting of a group: an option of `ortoo group update`, and a key of a file."""

    field: str
    """Its name in `GroupInfo` and `GroupChanges`."""
    kind: type
    help: str
    default: int = 0
    """The value that 0 stands for."""


GROUP_SETTINGS: Mapping[str, GroupSetting] = {
    "consume": GroupSetting("consume_enabled", bool, "Whether its members may consume."),
    "broadcast": GroupSetting("broadcast_enabled", bool, "Whether its members may consume by broadcast."),
    "notify": GroupSetting("notify_members_changed", bool, "Whether members are notified when members join or leave."),
    "slow_messages": GroupSetting(
        "slow_consumer_threshold_messages", int, "Lag in messages above which a member is slow; 0 = 1,024.", 1024
    ),
    "slow_grace_ms": GroupSetting(
        "slow_consumer_grace_ms", int, "Time without an acknowledgement before a slow member is evicted."
    ),
    "unacknowledged_bytes": GroupSetting(
        "unacknowledged_bytes_max",
        int,
        "Largest number of unacknowledged bytes of a push session; 0 = 64 MiB.",
        64 << 20,
    ),
    "attempts": GroupSetting("attempts_max", int, "Attempts before a message is parked; 0 = 16.", 16),
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
IDENTITY = {"topic": "name", "group": "name", "user": "access_key", "schedule": "name"}
"""The key that identifies an entry of each kind."""
KEYS = {"topic": TOPIC_KEYS, "group": GROUP_KEYS, "user": USER_KEYS, "schedule": SCHEDULE_KEYS}
LITE = "lite"
"""The type of topics whose lite topics may have a time to live."""
Entry = dict[str, Any]


class DeclaredChange(NamedTuple):
    """One topic, group, user or schedule to create or change."""

    kind: str
    name: str
    is_new: bool
    desired: Entry
    """The new values; if it exists, only those that differ."""
    previous: Entry

    def __str__(self) -> str:
        values = (
            f"{key} {self.previous[key]!r} → {value!r}" if self.previous.get(key) is not None else f"{key} {value!r}"
            for key, value in self.desired.items()
        )
        return f"{'+' if self.is_new else '~'} {self.kind} {self.name}: {', '.join(values) or 'with defaults'}"


async def apply(
    mq: "Client",
    file: Annotated[Path, typer.Option("-f", "--file", help="TOML as `ortoo export` prints it.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
) -> CommandOutput:
    """Create and change topics, groups, users and schedules as declared in a file. All others stay unchanged."""
    declared = read_declarations(file)
    present = await _read_existing(mq, with_users="user" in declared)
    present["schedule"] = await existing_schedules(mq, declared.get("schedule", ()))
    changes = plan_changes(declared, present)
    variables = {one.name: one.desired.pop("secret_env") for one in changes if one.kind == "user" and one.is_new}
    # All of them before the first change.
    secrets = {name: secret_of(one, "secret_env") for name, one in variables.items()} if not dry_run else {}
    for change in changes if not dry_run else ():
        match change.kind:
            case "topic":
                await _make_topic(mq, change)
            case "group":
                await mq.admin.groups.update(change.name, **group_changes(change.desired))
            case "schedule":
                topic, _, name = change.name.partition("/")
                await put_schedule(mq, topic, name, change.desired)
            case _:
                enabled = change.desired.get("enabled")
                await mq.admin.users.put(change.name, secret_key=secrets.get(change.name, ""), enabled=enabled)
    verb = "would change" if dry_run else "changed"
    lines = [
        *map(str, changes),
        f"{verb} {len(changes)} {'entry' if len(changes) == 1 else 'entries'}"
        if changes
        else "everything is as the file says",
    ]
    return CommandOutput([{"change": str(one), **one._asdict()} for one in changes], tuple(lines))


async def export(
    mq: "Client",
    without_enodes: Annotated[
        bool, typer.Option("--without-enodes", help="Leave out the enodes of topics, for another cluster.")
    ] = False,
) -> CommandOutput:
    """Print all topics, groups, users and schedules as TOML for `ortoo apply`.

    The secrets of users are left out: each user names an environment variable for its secret.
    """
    found = await _read_existing(mq, with_users=True)
    present = {
        "topic": [_exported_topic(one, with_enodes=not without_enodes) for one in found["topic"]],
        "group": found["group"],
        "user": [{**one, "secret_env": _variable(one["access_key"])} for one in found["user"]],
        "schedule": [exported_schedule(one) for one in await existing_schedules(mq, None)],
    }
    return CommandOutput(present, as_toml(present))


def read_declarations(file: Path) -> dict[str, list[Entry]]:
    """Read the topics, groups, users and schedules that a TOML file declares, with values as servers return them.

    Errors: Invalid, with the entry and the key.
    """
    try:
        values = tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{file} is not valid TOML: {error}", field="file") from error
    for kind in values.keys() - KEYS.keys():
        raise Invalid(f"{file} has {kind!r}; expected [[topic]], [[group]], [[user]] and [[schedule]]", field=kind)
    declared: dict[str, list[Entry]] = {"topic": [], "group": []}
    for kind, entries in values.items():
        names = set[str]()
        declared[kind] = []
        for number, entry in enumerate(entries):
            _check(entry, kind, f"{kind}[{number}]")
            if (name := _name(kind, entry)) in names:
                raise Invalid(f"{kind} {name} is declared twice", field=f"{kind}[{number}].{IDENTITY[kind]}")
            names.add(name)
            canonical = {key: _canonical(kind, key, value, number) for key, value in entry.items()}
            declared[kind].append(
                canonical_schedule(canonical, f"{kind}[{number}]") if kind == "schedule" else canonical
            )
    return declared


def plan_changes(declared: Mapping[str, list[Entry]], present: Mapping[str, list[Entry]]) -> list[DeclaredChange]:
    """The entries to create or change so that the cluster has the `declared` values, in the order of KEYS.

    `present` has the current values. Errors: Invalid for a value that cannot be changed, and for a new user without a
    secret.
    """
    changes = []
    for kind, identity in IDENTITY.items():
        existing = {_name(kind, entry): entry for entry in present.get(kind, ())}
        for number, entry in enumerate(declared.get(kind, ())):
            name = _name(kind, entry)
            previous = existing.get(name)
            if previous is None:
                if kind == "user" and not entry.get("secret_env"):
                    raise Invalid(
                        f"user {name} does not exist; expected the environment variable with its secret key",
                        field=f"user[{number}].secret_env",
                    )
                desired = {key: value for key, value in entry.items() if key not in (identity, "topic")}
                changes.append(DeclaredChange(kind, name, True, desired, {}))
                continue
            if kind == "topic":
                _check_changeable(entry, previous)
            desired = dict(_differences(kind, entry, previous))
            if desired:
                kept = {key: previous.get(key) for key in desired}
                changes.append(DeclaredChange(kind, name, False, desired, kept))
    return changes


def _name(kind: str, entry: Entry) -> str:
    """The name of an entry, by which it is known; that of a schedule has its topic."""
    name = str(entry[IDENTITY[kind]])
    return f"{entry.get('topic', '')}/{name}" if kind == "schedule" else name


def _differences(kind: str, entry: Entry, previous: Entry) -> Iterator[tuple[str, Any]]:
    """The declared values that an existing entry does not have."""
    for key, value in entry.items():
        if key == "enodes":
            # A topic leaves no enode by a declaration, because its messages are there.
            if added := [one for one in value if one not in previous.get(key, ())]:
                yield key, [*previous.get(key, ()), *added]
        elif kind == "topic" and key in ("queues", "write_queues") and value == 0:
            continue  # the default of a new topic
        elif key not in (IDENTITY[kind], "secret_env") and value != previous.get(key):
            yield key, value


def _canonical(kind: str, key: str, value: Any, number: int) -> Any:
    """A declared value as servers return it, so that the same file changes nothing the second time. Errors: Invalid."""
    from ortoo.client.admin.topics import MESSAGE_TYPES, PERMISSIONS
    from ortoo.common.groups.retry_policy import RetryPolicy

    field = f"{kind}[{number}].{key}"
    if kind == "group" and key == "retry":
        return RetryPolicy.read(value, field).text()
    if kind == "group" and value == 0 and type(value) is int:
        return GROUP_SETTINGS[key].default
    if kind == "topic" and key in ("permission", "type"):
        names = PERMISSIONS if key == "permission" else MESSAGE_TYPES
        try:
            names.number(value)
        except Invalid as error:
            raise Invalid(error.message, field=field) from None
    if kind == "topic" and key == "publish_order":
        for one in value:
            if not re.fullmatch(r".+:[0-9]+", one):
                raise Invalid(f"{one!r}; expected ENODE:QUEUES", field=field)
    return value


def as_toml(present: Mapping[str, list[Entry]]) -> str:
    """Write topics, groups, users and schedules as TOML."""
    return "\n".join(_lines(present)).rstrip()


def _lines(present: Mapping[str, list[Entry]]) -> Iterator[str]:
    for kind, entries in present.items():
        for entry in entries:
            yield f"[[{kind}]]"
            for key, value in entry.items():
                yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
            yield ""


def _check(entry: object, kind: str, where: str) -> None:
    identity, keys = IDENTITY[kind], KEYS[kind]
    if not isinstance(entry, dict) or not entry.get(identity):
        raise Invalid(f"missing {identity}; expected that of the {kind}", field=f"{where}.{identity}")
    for key, value in entry.items():
        if key not in keys:
            raise Invalid(f"unknown key; expected one of {', '.join(keys)}", field=f"{where}.{key}")
        if type(value) is not keys[key] or (type(value) is list and not all(type(one) is str for one in value)):
            wanted = "a list of str" if keys[key] is list else keys[key].__name__
            raise Invalid(f"{value!r}; expected {wanted}", field=f"{where}.{key}")


def _check_changeable(entry: Entry, existing: Entry) -> None:
    if entry.get("type", existing["type"]) != existing["type"]:
        raise Invalid(
            f"topic {existing['name']} has the type {existing['type']}, which cannot be changed", field="type"
        )
    if 0 < entry.get("queues", 0) < existing["queues"]:
        raise Invalid(
            f"topic {existing['name']} has {existing['queues']} queues on each enode; expected more", field="queues"
        )


async def _read_existing(mq: "Client", *, with_users: bool) -> dict[str, list[Entry]]:
    topics = [_topic(one) for one in await mq.admin.list_topics() if not one.name.startswith(SYSTEM_PREFIX)]
    groups = [_group(one) for one in await mq.admin.list_groups() if not one.auto_created]
    users = [_user(one) for one in await mq.admin.users.list()] if with_users else []
    return {"topic": topics, "group": groups, "user": users}


def _topic(topic: "TopicInfo") -> Entry:
    return {
        "name": topic.name,
        "queues": max((one.read_queue_count for one in topic.placements), default=0),
        "write_queues": max((one.write_queue_count for one in topic.placements), default=0),
        "permission": topic.permission,
        "type": topic.message_type,
        "lite_ttl_ms": topic.lite_ttl_ms,
        "enodes": [one.enode for one in topic.placements],
        "publish_order": [f"{enode}:{count}" for enode, count in topic.publish_order],
    }


def _exported_topic(entry: Entry, *, with_enodes: bool) -> Entry:
    """A topic without the values that follow from others."""
    left_out = {
        "write_queues": entry["write_queues"] == entry["queues"],
        "lite_ttl_ms": entry["type"] != LITE,
        "enodes": not with_enodes,
        "publish_order": not entry["publish_order"] or not with_enodes,
    }
    return {key: value for key, value in entry.items() if not left_out.get(key)}


def _user(user: "UserInfo") -> Entry:
    return {"access_key": user.access_key, "enabled": user.enabled}


def _variable(access_key: str) -> str:
    """The name of an environment variable for a user's secret key."""
    return f"ORTOO_SECRET_KEY_{re.sub('[^A-Z0-9]', '_', access_key.upper())}"


def _group(group: "GroupInfo") -> Entry:
    return {"name": group.name, **{key: getattr(group, one.field) for key, one in GROUP_SETTINGS.items()}}


async def _make_topic(mq: "Client", change: DeclaredChange) -> None:
    desired = dict(change.desired)
    if change.is_new:
        await mq.admin.create_topic(
            change.name,
            queue_count=desired.pop("queues", 0),
            permission=desired.pop("permission", "read_write"),
            message_type=desired.pop("type", "any"),
            lite_ttl_ms=desired.pop("lite_ttl_ms", 0),
            enodes=desired.pop("enodes", ()),
        )
        if not any(desired.values()):
            return
    queues, order = desired.get("queues", 0), desired.get("publish_order")
    await mq.admin.update_topic(
        change.name,
        read_queue_count=queues,
        write_queue_count=desired.get("write_queues", 0) or queues,
        permission=desired.get("permission", ""),
        add_enodes=desired.get("enodes", ()),
        publish_order=None
        if order is None
        else [(one.rpartition(":")[0], int(one.rpartition(":")[2])) for one in order],
        lite_ttl_ms=desired.get("lite_ttl_ms"),
    )


def group_changes(values: Entry) -> "GroupChanges":
    """The arguments of `GroupAdmin.update` for settings that have their names in files."""
    changes: Any = {GROUP_SETTINGS[key].field: value for key, value in values.items()}
    return changes  # type: ignore[no-any-return]
