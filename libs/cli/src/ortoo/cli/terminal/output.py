"""The output of commands: JSON for programs, lines and tables for people.

The JSON of every command has one object per line, also for lists. Integers are as in the JSON of protobuf. Those of at
most 32 bits are numbers, and others are strings, because programs read numbers as doubles.
"""

import asyncio
import dataclasses
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ortoo.cli.terminal.printing import clear_screen, print_json, print_text
from ortoo.common.machine.printable import printable_line
from ortoo.common.machine.standard_files import STANDARD_OUTPUT

if TYPE_CHECKING:
    from ortoo.client import DeadLetter, Message, PeekedMessage, StoredMessage

BODY_CHARACTERS = 60
SMALL_INTEGER_FIELDS = frozenset(
    (
        *("added", "attempt", "attempts", "attempts_max", "checks", "groups", "in_flight", "in_flight_max", "leader"),
        *(
            "majority",
            "replica",
            "message_count",
            "number",
            "priority",
            "proposed",
            "publish_order",
            "queue_id",
            "queues",
        ),
        *("read_queue_count", "removed", "reported_ms_ago", "slow_consumer_grace_ms"),
        *("slow_consumer_threshold_messages", "slow_grace_ms", "slow_messages", "successor", "write_queue_count"),
        "write_queues",
    )
)
"""Fields whose integers have at most 32 bits. Others become strings, so that no digits are lost."""
Columns = Mapping[str, str | Callable[[Any], object]]
"""Heading to the cell of a row: an attribute such as `queue.enode`, or a function of the item."""


@dataclass(frozen=True, slots=True)
class OutputTable:
    """Items as rows under headings; booleans are shown as yes and no."""

    columns: Columns
    items: Iterable[Any]

    def rows(self) -> list[list[str]]:
        """The cell texts of each row."""
        cells = [attrgetter(cell) if isinstance(cell, str) else cell for cell in self.columns.values()]
        return [[_cell_text(cell(item)) for cell in cells] for item in self.items]


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The output of a command."""

    value: Any
    """For JSON: one object, or several, each on its own line."""
    text: "str | OutputTable | Sequence[str | OutputTable]" = ()
    """For people."""
    clears_screen: bool = False
    """Whether it replaces the previous output on a terminal."""


def show(output: CommandOutput, *, as_json: bool) -> None:
    """Print the output of a command: its value as JSON if `as_json`, otherwise its text."""
    if output.clears_screen and not as_json:
        clear_screen()
    if as_json:
        for line in json_lines(output.value):
            print_json(line)
        return
    for part in (output.text,) if isinstance(output.text, str | OutputTable) else output.text:
        if isinstance(part, str):
            print_text(part)
        else:
            _print_rows([list(part.columns), *part.rows()])


def json_lines(value: Any) -> Iterator[str]:
    """A result of the client as lines of JSON, one object per line."""
    is_list = isinstance(value, list | tuple | Iterator) and not hasattr(value, "_fields")
    for one in value if is_list else (value,):
        yield json.dumps(_json_value(one), ensure_ascii=False)


def message_fields(it: "StoredMessage | PeekedMessage | DeadLetter") -> dict[str, Any]:
    """The fields of a stored message for JSON."""
    fields: dict[str, Any] = {
        "message_id": it.message_id,
        "topic": it.queue.topic,
        "enode": it.queue.enode,
        "queue_id": it.queue.queue_id,
        "offset": it.offset,
        **({"stored_at_ms": it.stored_at_ms} if hasattr(it, "stored_at_ms") else {}),
    }
    return fields | content_fields(it.message)


def content_fields(message: "Message") -> dict[str, Any]:
    """The content of a message for JSON: all columns but the id. The body is text, or base64 if it is not UTF-8."""
    from ortoo.common.records.columns import MESSAGE_COLUMNS, MESSAGE_ID

    columns = [one for one in MESSAGE_COLUMNS if one is not MESSAGE_ID and not one.is_about_body]
    return {one.name: _plain(getattr(message, one.name)) for one in columns} | body_fields(message.body)


def body_fields(body: bytes) -> dict[str, str]:
    """The body of a message for JSON: text, or base64 if it is not UTF-8."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        import base64

        return {"body_base64": base64.b64encode(body).decode()}


def _plain(value: Any) -> Any:
    """A column's value as it is shown: lists and dicts in place of tuples and read-only maps."""
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value


def body_start(it: "StoredMessage | PeekedMessage | DeadLetter") -> str:
    """The first characters of a message's body, for a table."""
    return it.message.body[: 4 * BODY_CHARACTERS].decode(errors="backslashreplace")[:BODY_CHARACTERS]


def text_of_time(time_ms: int) -> str:
    """The text of a time, milliseconds since 1970-01-01 UTC, as options of commands take it."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def when_unread(call: Callable[[], object]) -> None:
    """Call `call` when the reader of a standard output pipe has ended.

    A command that waits without printing would not notice the end of its reader.
    """
    loop = asyncio.get_running_loop()

    def gone() -> None:
        loop.remove_reader(STANDARD_OUTPUT)
        call()

    if stat.S_ISFIFO(os.fstat(STANDARD_OUTPUT).st_mode):
        loop.add_reader(STANDARD_OUTPUT, gone)


def _print_rows(cells: Sequence[Sequence[str]]) -> None:
    """Print rows, headings first, with numbers aligned right; not wrapped, so that pipes get whole lines."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        parts = [
            cell.rjust(width) if number and cell.lstrip("-").isdecimal() else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ]
        print_text("  ".join(parts).rstrip())


def _cell_text(cell: object) -> str:
    return ("yes" if cell else "no") if isinstance(cell, bool) else printable_line(str(cell))


def _json_value(value: Any, field: str = "") -> Any:
    """The JSON value of `value` in a field, or in a list in that field."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: _json_value(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item, field) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return value if field in SMALL_INTEGER_FIELDS else str(value)
    return value
