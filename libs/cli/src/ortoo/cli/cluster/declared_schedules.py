"""Schedules of recurring messages in the files of `ortoo apply` and `ortoo export`."""

import base64
import binascii
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ortoo.cli.terminal.values import milliseconds_of, properties_of, text_of_period
from ortoo.common.errors import Invalid, NotFound, Unsupported

if TYPE_CHECKING:
    from ortoo.client import Client, ScheduleInfo

SCHEDULE_KEYS: Mapping[str, type] = {
    "topic": str,
    "name": str,
    "cron": str,
    "timezone": str,
    "every": str,
    "catch_up": str,
    "suspended": bool,
    "body": str,
    "body_base64": str,
    "tag": str,
    "keys": list,
    "properties": list,
    "message_group": str,
}
LISTED_MAX = 10_000
"""Limit of a list of schedules, which is the server's maximum."""
Entry = dict[str, Any]


def canonical_schedule(entry: Entry, where: str) -> Entry:
    """A declared schedule as `existing_schedules` returns it. Errors: Invalid."""
    found = dict(entry)
    if not found.get("topic"):
        raise Invalid("missing topic; expected that of the schedule's messages", field=f"{where}.topic")
    if bool(found.get("cron")) == bool(found.get("every")):
        raise Invalid("give either cron or every", field=f"{where}.cron")
    if "body" in found and "body_base64" in found:
        raise Invalid("give either body or body_base64", field=f"{where}.body")
    if found.get("every"):
        found |= {
            "every": text_of_period(milliseconds_of(found["every"], f"{where}.every")),
            "cron": "",
            "timezone": "",
        }
    else:
        found["every"] = ""
    properties_of(found.get("properties", ()))
    if "body_base64" in found:
        try:
            body = base64.b64decode(found.pop("body_base64"), validate=True)
        except binascii.Error as error:
            raise Invalid(f"{error}; expected base64", field=f"{where}.body_base64") from None
        found |= _body(body)
    if "properties" in found:
        found["properties"] = sorted(found["properties"])
    return found


async def existing_schedules(mq: "Client", declared: Iterable[Entry] | None) -> list[Entry]:
    """The existing schedules among `declared`, or all schedules."""
    if declared is None:
        try:
            listed = await mq.admin.schedules.list(limit=LISTED_MAX)
        except Unsupported:  # by a snode of an older version
            return []
        places = [(one.topic, one.name) for one in listed.schedules]
        if len(places) == LISTED_MAX:
            raise Invalid(f"more than {LISTED_MAX} schedules cannot be exported", field="schedule")
    else:
        places = [(one["topic"], one["name"]) for one in declared]
    found = []
    for topic, name in places:
        with suppress(NotFound):  # also for a topic that does not exist yet
            found.append(_entry(await mq.admin.schedules.describe(topic, name)))
    return found


async def put_schedule(mq: "Client", topic: str, name: str, desired: Entry) -> None:
    """Create or change a schedule. Fields of its message that no file declares stay as they are."""
    from ortoo.client import Message

    known: ScheduleInfo | None = None
    with suppress(NotFound):
        known = await mq.admin.schedules.describe(topic, name)
    values = (_entry(known) if known is not None else {}) | desired
    kept = known.message if known is not None and known.message is not None else Message(b"")
    body = values.get("body", "").encode() or base64.b64decode(values.get("body_base64", ""))
    message = kept.replace(
        body=body,
        tag=values.get("tag") or None,
        keys=tuple(values.get("keys", ())),
        properties=properties_of(values.get("properties", ())),
        message_group=values.get("message_group") or None,
        born_at_ms=None,
    )
    every = values.get("every")
    await mq.admin.schedules.create(
        topic,
        name,
        message,
        cron=values.get("cron", ""),
        timezone=values.get("timezone", ""),
        every=timedelta(milliseconds=milliseconds_of(every, "every")) if every else None,
        catch_up=values.get("catch_up", "last"),
        replace=True,
    )
    if values.get("suspended", False) != (known is not None and known.suspended):
        change = mq.admin.schedules.suspend if values["suspended"] else mq.admin.schedules.resume
        await change(topic, name)


def exported_schedule(entry: Entry) -> Entry:
    """A schedule without values that are the defaults."""
    return {key: value for key, value in entry.items() if value not in ("", [], False, "last")}


def _entry(one: "ScheduleInfo") -> Entry:
    assert one.message is not None, "the result of describe has it"
    message = one.message
    return {
        "topic": one.topic,
        "name": one.name,
        "cron": one.cron,
        "timezone": one.timezone,
        "every": text_of_period(one.period_ms),
        "catch_up": one.catch_up,
        "suspended": one.suspended,
        **_body(message.body),
        "tag": message.tag or "",
        "keys": list(message.keys),
        "properties": sorted(f"{name}={value}" for name, value in message.properties.items()),
        "message_group": message.message_group or "",
    }


def _body(body: bytes) -> Entry:
    """The body as text, if it is UTF-8 that a file can hold."""
    try:
        return {"body": body.decode(), "body_base64": ""}
    except UnicodeDecodeError:
        return {"body": "", "body_base64": base64.b64encode(body).decode()}
