"""What commands print: JSON for programs, tables for people."""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

from ortoo.client import StoredMessage


def print_json(value: Any) -> None:
    """Print a value of the client as one line of JSON."""
    print(json.dumps(_plain(value), ensure_ascii=False), flush=True)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under headings, numbers to the right; as wide as they are, so that pipes get whole lines."""
    cells = [list(headings), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    for number, row in enumerate(cells):
        parts = [
            cell.rjust(width) if number and cell.lstrip("-").isdigit() else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ]
        print("  ".join(parts).rstrip())


def message_fields(stored: StoredMessage) -> dict[str, Any]:
    """A message for JSON: its body as text, or as base64 when it is not UTF-8."""
    fields: dict[str, Any] = {
        "message_id": stored.message_id,
        "topic": stored.queue.topic,
        "enode": stored.queue.enode,
        "queue_id": stored.queue.queue_id,
        "offset": stored.offset,
        "stored_at_ms": stored.stored_at_ms,
        "tag": stored.message.tag,
        "keys": list(stored.message.keys),
        "message_group": stored.message.message_group,
        "properties": dict(stored.message.properties),
    }
    try:
        fields["body"] = stored.message.body.decode()
    except UnicodeDecodeError:
        import base64

        fields["body_base64"] = base64.b64encode(stored.message.body).decode()
    return fields


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value
