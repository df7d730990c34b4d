"""Decisions about consumer groups, as pure functions of the current state."""

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ortoo.common.cluster.names import check_group_name
from ortoo.common.directory.group import DEFAULTS, MAXIMA, SETTINGS, ZERO_IS_DEFAULT, Group
from ortoo.common.errors import AlreadyExists, Invalid, NotFound, Overloaded

GROUPS_MAX = 100_000
EXCLUSIVE_NAME_MAX = 115
"""The longest name of a group with `lite_exclusive`; the owners of its lite topics are stored under a longer one."""


def with_defaults(request: Group) -> Group:
    """Check a requested group and fill in its defaults. Errors: Invalid, naming the field."""
    check_group_name(request.name, "group.name")
    defaults = {name: getattr(request, name) or getattr(DEFAULTS, name) for name in ZERO_IS_DEFAULT}
    group = dataclasses.replace(request, **defaults, retry=request.retry.with_defaults("group.retry"))
    for field, most in MAXIMA.items():
        if getattr(group, field) > most:
            raise Invalid(f"{getattr(group, field)}; give at most {most}", field=f"group.{field}")
    if group.lite_exclusive and len(group.name) > EXCLUSIVE_NAME_MAX:
        what = f"the name has {len(group.name)} characters; at most {EXCLUSIVE_NAME_MAX} with lite_exclusive"
        raise Invalid(what, field="group.lite_exclusive")
    return group


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
