"""Decisions about consumer groups, as pure functions of what is there."""

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
"""How long the name of a group may be whose lite topics have one member each: who it is, is kept under a longer one."""


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group's configuration. In a request, counts of 0 stand for their defaults; the grace may be 0."""

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
    by_use: bool = False
    """Whether nobody declared it: a consumer named it."""
    lite_exclusive: bool = False


def completed(request: Group) -> Group:
    """Check a request by itself and fill in its defaults. Errors: Invalid, naming the field."""
    check_group_name(request.name, "group.name")
    group = dataclasses.replace(
        request,
        slow_consumer_threshold_messages=request.slow_consumer_threshold_messages or SLOW_THRESHOLD_DEFAULT_MESSAGES,
        unacknowledged_bytes_max=request.unacknowledged_bytes_max or UNACKNOWLEDGED_DEFAULT_BYTES,
        attempts_max=request.attempts_max or ATTEMPTS_MAX,
        retry=request.retry.checked("group.retry"),
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
"""What can be changed of a group."""


@dataclass(frozen=True, slots=True)
class Meant:
    """Which settings a request is about: those that it names, otherwise those that it holds."""

    fields: Sequence[str] = ()
    said: Collection[str] = SETTINGS


WHOLE = Meant()
"""All settings."""


def changed(request: Group, existing: Group | None, meant: Meant) -> Group:
    """The group that is asked for, with what the request does not mean as it was. Errors: Invalid for a wrong field."""
    if unknown := [one for one in meant.fields if one not in SETTINGS]:
        raise Invalid(f"{unknown[0]!r} is no setting of a group; there are {', '.join(SETTINGS)}", field="fields")
    if existing is None:
        return request
    chosen = meant.fields or meant.said
    kept = {one: getattr(existing, one) for one in SETTINGS if one not in chosen}
    return dataclasses.replace(request, **kept)


def put(
    request: Group, existing: Group | None, *, create_only: bool, group_count: int, version: int, now_ms: int
) -> Group:
    """The group after a completed request; the `existing` one itself if it is so already.

    What was declared once is never again one that is there by use alone.

    Errors: AlreadyExists, Overloaded.
    """
    if existing is None:
        if group_count >= GROUPS_MAX:
            raise Overloaded(f"there are {group_count} groups, which is the most; delete some that are not used")
        return dataclasses.replace(request, version=version, created_at_ms=now_ms)
    if create_only:
        raise AlreadyExists(
            f"group {request.name} exists; leave out create_only to change it, or give another name", field="group.name"
        )
    changed = dataclasses.replace(
        request,
        version=existing.version,
        created_at_ms=existing.created_at_ms,
        by_use=request.by_use and existing.by_use,
    )
    return existing if changed == existing else dataclasses.replace(changed, version=version)


def found(name: str, existing: Group | None) -> Group:
    """The group that a request names. Errors: Invalid, NotFound."""
    check_group_name(name, "name")
    if existing is None:
        raise NotFound(f"there is no group {name!r}; create it with PutGroup, or fix the name", field="name")
    return existing
