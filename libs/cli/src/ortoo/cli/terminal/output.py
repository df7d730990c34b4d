"""What commands print: JSON for programs, lines and tables for people."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ortoo.client import DeadLetter, PeekedMessage, StoredMessage

BODY_CHARACTERS = 60
Columns = Mapping[str, str | Callable[[Any], object]]
"""Heading to what a row's cell shows: an attribute such as `queue.enode`, or what a function makes of the item."""


@dataclass(frozen=True, slots=True)
class Table:
    """Items as rows under headings; truth is shown as yes and no."""

    columns: Columns
    items: Iterable[Any]

    def rows(self) -> list[list[str]]:
        """The texts of the cells."""
        cells = [attrgetter(cell) if isinstance(cell, str) else cell for cell in self.columns.values()]
        return [[_shown(cell(item)) for cell in cells] for item in self.items]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command says."""

    value: Any
    """For programs, as one line of JSON."""
    shown: "str | Table | Sequence[str | Table]" = ()
    """For people."""
    each: bool = False
    """Whether each item of `value` is a line of its own."""


def show(answer: Answer, *, as_json: bool) -> None:
    """Print an answer."""
    if as_json:
        for value in answer.value if answer.each else (answer.value,):
            print_json(value)
        return
    for part in (answer.shown,) if isinstance(answer.shown, str | Table) else answer.shown:
        if isinstance(part, str):
            print(part, flush=True)
        else:
            _print_rows([list(part.columns), *part.rows()])


def print_json(value: Any) -> None:
    """Print a value of the client as one line of JSON."""
    print(json.dumps(_plain(value), ensure_ascii=False), flush=True)


def message_fields(it: "StoredMessage | PeekedMessage | DeadLetter") -> dict[str, Any]:
    """A message for JSON: its body as text, or as base64 when it is not UTF-8."""
    fields: dict[str, Any] = {
        "message_id": it.message_id,
        "topic": it.queue.topic,
        "enode": it.queue.enode,
        "queue_id": it.queue.queue_id,
        "offset": it.offset,
        **({"stored_at_ms": it.stored_at_ms} if hasattr(it, "stored_at_ms") else {}),
        "tag": it.message.tag,
        "keys": list(it.message.keys),
        "message_group": it.message.message_group,
        "properties": dict(it.message.properties),
    }
    try:
        fields["body"] = it.message.body.decode()
    except UnicodeDecodeError:
        import base64

        fields["body_base64"] = base64.b64encode(it.message.body).decode()
    return fields


def body_start(it: "StoredMessage | PeekedMessage | DeadLetter") -> str:
    """The first characters of a message's body, for a table."""
    return it.message.body[: 4 * BODY_CHARACTERS].decode(errors="backslashreplace")[:BODY_CHARACTERS]


def _print_rows(cells: Sequence[Sequence[str]]) -> None:
    """Print rows, the headings first, numbers to the right; as wide as they are, so that pipes get whole lines."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        parts = [
            cell.rjust(width) if number and cell.lstrip("-").isdigit() else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ]
        print("  ".join(parts).rstrip())


def _shown(cell: object) -> str:
    return ("yes" if cell else "no") if isinstance(cell, bool) else str(cell)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value
