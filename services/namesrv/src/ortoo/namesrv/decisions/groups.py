"""Decisions about consumer groups, as pure functions of the current state."""

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import AlreadyExists, Invalid, NotFound, Overloaded
from ortoo.common.groups.failure_rule import ATTEMPTS_LIMIT, ATTEMPTS_MAX
from ortoo.common.groups.retry_policy import RetryPolicy

GROUPS_MAX = 100_000
SLOW_THRESHOLD_DEFAULT_MESSAGES = 1024
SLOW_THRESHOLD_MAX_MESSAGES = 1_000_000_000
SLOW_GRACE_DEFAULT_MS = 10_000
SLOW_GRACE_MAX_MS = 86_400_000
UNACKNOWLEDGED_DEFAULT_BYTES = 64 << 20
UNACKNOWLEDGED_MAX_BYTES = 16 << 30
IN_FLIGHT_MAX = 1_000_000
EXCLUSIVE_NAME_MAX = 115
"""The longest name of a group with `lite_exclusive`; the owners of its lite topics are stored under a longer one."""


@dataclass(frozen=True, slots=True)
class Group:
    """The configuration of a consumer group. In a request, 0 is the default, except for `slow_consumer_grace_ms`."""

    name: str
    version: int
    consume_enabled: bool = True
    slow_consumer_threshold_messages: int = 0
    slow_consumer_grace_ms: int = SLOW_GRACE_DEFAULT_MS
    created_at_ms: int = 0
    broadcast_enabled: bool = True
    notify_members_changed: bool = True
    unacknowledged_bytes_max: int = 0
    attempts_max: int = 0
    retry: RetryPolicy = RetryPolicy()
    in_flight_max: int = 0
    park_expired: bool = False
    auto_created: bool = False
    """Whether the group was created automatically because a consumer named it. All other groups are *declared*."""
    lite_exclusive: bool = False


def with_defaults(request: Group) -> Group:
    """Check a requested group and fill in its defaults. Errors: Invalid, naming the field."""
    check_group_name(request.name, "group.name")
    group = dataclasses.replace(
        request,
        slow_consumer_threshold_messages=request.slow_consumer_threshold_messages or SLOW_THRESHOLD_DEFAULT_MESSAGES,
        unacknowledged_bytes_max=request.unacknowledged_bytes_max or UNACKNOWLEDGED_DEFAULT_BYTES,
        attempts_max=request.attempts_max or ATTEMPTS_MAX,
        retry=request.retry.with_defaults("group.retry"),
    )
    for field, most in (
        ("slow_consumer_threshold_messages", SLOW_THRESHOLD_MAX_MESSAGES),
        ("slow_consumer_grace_ms", SLOW_GRACE_MAX_MS),
        ("unacknowledged_bytes_max", UNACKNOWLEDGED_MAX_BYTES),
        ("attempts_max", ATTEMPTS_LIMIT),
        ("in_flight_max", IN_FLIGHT_MAX),
    ):
        if getattr(group, field) > most:
            raise Invalid(f"{getattr(group, field)}; give at most {most}", field=f"group.{field}")
    if group.lite_exclusive and len(group.name) > EXCLUSIVE_NAME_MAX:
        what = f"the name has {len(group.name)} characters; at most {EXCLUSIVE_NAME_MAX} with lite_exclusive"
        raise Invalid(what, field="group.lite_exclusive")
    return group


SETTINGS = tuple(
    field.name for field in dataclasses.fields(Group) if field.name not in ("name", "version", "created_at_ms")
)
"""The settings of a group that can be changed."""


@dataclass(frozen=True, slots=True)
class FieldSelection:
    """The settings that a request changes: its `fields`, or the `present` settings if `fields` is empty."""

    fields: Sequence[str] = ()
    present: Collection[str] = SETTINGS


ALL_FIELDS = FieldSelection()
"""All settings."""


def merge_request(request: Group, existing: Group | None, selection: FieldSelection) -> Group:
    """The group to store for a request: its settings in `selection`, all others from `existing`. Errors: Invalid."""
    if unknown := [one for one in selection.fields if one not in SETTINGS]:
        raise Invalid(
            f"{unknown[0]!r} is not a setting of a group; the settings are {', '.join(SETTINGS)}", field="fields"
        )
    if existing is None:
        return request
    chosen = selection.fields or selection.present
    kept = {one: getattr(existing, one) for one in SETTINGS if one not in chosen}
    return dataclasses.replace(request, **kept)


def put(
    request: Group, existing: Group | None, *, create_only: bool, group_count: int, version: int, now_ms: int
) -> Group:
    """The group to store for a complete request, or `existing` if nothing changes.

    A declared group stays declared: a later automatic creation does not change that. Errors: AlreadyExists, Overloaded.
    """
    if existing is None:
        if group_count >= GROUPS_MAX:
            raise Overloaded(f"there are {group_count} groups, the maximum; delete unused groups")
        return dataclasses.replace(request, version=version, created_at_ms=now_ms)
    if create_only:
        raise AlreadyExists(
            f"group {request.name} exists; leave out create_only to change it, or give another name", field="group.name"
        )
    changed = dataclasses.replace(
        request,
        version=existing.version,
        created_at_ms=existing.created_at_ms,
        auto_created=request.auto_created and existing.auto_created,
    )
    return existing if changed == existing else dataclasses.replace(changed, version=version)


def require_group(name: str, existing: Group | None) -> Group:
    """Check that the group of a request exists; returns `existing`. Errors: Invalid, NotFound."""
    check_group_name(name, "name")
    if existing is None:
        raise NotFound(f"there is no group {name!r}; create it with PutGroup, or fix the name", field="name")
    return existing
