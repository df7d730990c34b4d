"""The groups in which clients may consume."""

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid
from ortoo.common.groups.group_topics import DERIVED_PREFIXES
from ortoo.common.groups.sinks import SINK_GROUP_PREFIX


def check_consumer_group(name: str, field: str = "group", *, sinks: bool = False) -> None:
    """Refuse a group in which no client may consume: a wrong name, or one that servers derive from another group.

    `sinks` allows the account of an exactly-once sink. Errors: Invalid.
    """
    check_group_name(name, field)
    reserved = DERIVED_PREFIXES if sinks else (*DERIVED_PREFIXES, SINK_GROUP_PREFIX)
    if (prefix := next(filter(name.startswith, reserved), None)) is not None:
        raise Invalid(f"{name!r} begins with {prefix}, which only the servers use; choose another group", field=field)
