"""`ortoo delay`: messages that wait for their time."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from ortoo.cli.terminal.output import print_json, print_table
from ortoo.client import Invalid, connect

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


async def show(addresses: Sequence[str], topic: str, *, limit: int, as_json: bool) -> None:
    """Print the delayed messages of a topic, the next first."""
    async with connect(addresses) as mq:
        delayed = await mq.admin.list_delayed(topic, limit=limit)
    if as_json:
        print_json(delayed)
        return
    print_table(
        ("DUE", "ENODE", "QUEUE", "MESSAGE ID", "RECALL HANDLE"),
        [
            (text_of_time(it.deliver_at_ms), it.queue.enode, it.queue.queue_id, it.message_id, it.recall_handle)
            for it in delayed
        ],
    )


async def cancel(addresses: Sequence[str], handles: Sequence[str], *, as_json: bool) -> None:
    """Forget delayed messages, by their recall handles."""
    async with connect(addresses) as mq:
        for handle in handles:
            await mq.recall(handle)
            if as_json:
                print_json({"recalled": handle})
            else:
                print(f"recalled {handle}")


def milliseconds_of(duration: str) -> int:
    """Read a duration such as 500ms, 90s, 15m, 2h or 30d. Errors: Invalid."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", duration.strip())
    if match is None:
        raise Invalid(f"{duration!r}; expected a number and a unit, such as 500ms, 90s, 15m, 2h or 30d", field="delay")
    return round(float(match[1]) * _UNITS_MS[match[2]])


def text_of_time(time_ms: int) -> str:
    """A time for people, in UTC."""
    return (
        datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
    )
