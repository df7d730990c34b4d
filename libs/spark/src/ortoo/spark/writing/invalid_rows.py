"""Rows that cannot be sent: they are found before a batch is sent, and go to a topic of their own.

The rows of an Arrow batch are encoded and checked together, as snodes check them. If the check fails, each half is
checked alone, down to the invalid rows. So a batch without invalid rows is checked once.
"""

import base64
import datetime
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from ortoo.client.produce.routes import Route
from ortoo.common.arrays.batch_check import check
from ortoo.common.errors import Invalid, NotFound, OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.records.compression import Codec
from ortoo.common.records.message import BODY_BYTES_MAX
from ortoo.common.records.text_rules import without_control_characters
from ortoo.spark.core import log_events
from ortoo.spark.writing.lanes import Lanes, TaskIdentity
from ortoo.spark.writing.rows import message_rows
from ortoo.spark.writing.write_options import WriteOptions

REASON_LENGTH_MAX = 1_000
_log = get_logger("spark")


class InvalidRow(NamedTuple):
    """A row as an Arrow batch of one row, and the reason why it cannot be sent."""

    row: Any
    error: OrtooError


class SendableRows:
    """Makes messages of rows. With a topic for invalid rows, these become messages of that topic."""

    def __init__(self, options: WriteOptions, route_of: Callable[[str], Route]) -> None:
        """`route_of` returns the queues of a topic."""
        self._options = options
        self._route_of = route_of
        self._missing: dict[str, NotFound] = {}

    def messages(self, batch: Any, now_ms: int) -> Iterator[Any]:
        """Yield the messages of an Arrow batch of rows, as Arrow batches.

        Errors: Unavailable, and Invalid for a row without a topic for invalid rows.
        """
        topic, invalid = self._options.invalid_rows_topic, list[InvalidRow]()
        if topic:
            batch, invalid = self._divide(batch, now_ms)
        yield from copies(invalid, topic, is_repeatable=self._options.is_repeatable)
        if invalid:
            reason = str(invalid[0].error)
            _log.emit(log_events.INVALID_ROWS_STORED, rows=len(invalid), topic=topic, reason=reason)
        if len(batch):
            yield message_rows(batch, self._options)

    def _divide(self, batch: Any, now_ms: int) -> tuple[Any, list[InvalidRow]]:
        """The rows that can be sent, and the others."""
        valid, invalid = list[Any](), list[InvalidRow]()
        waiting = [batch] if len(batch) else []
        while waiting:
            part = waiting.pop()
            error = self._error_of(part, now_ms)
            if error is None:
                valid.append(part)
            elif len(part) == 1:
                invalid.append(InvalidRow(part, error))
            else:
                half = len(part) // 2
                waiting += (part.slice(half), part.slice(0, half))
        return (pa.concat_batches(valid) if valid else batch.slice(0, 0)), invalid

    def _error_of(self, rows: Any, now_ms: int) -> OrtooError | None:
        lanes = Lanes(self._known_route, TaskIdentity("", 0, 0), Codec.NONE)
        try:
            for addressed in (*lanes.add(message_rows(rows, self._options), now_ms), *lanes.finish(now_ms)):
                check(addressed.batch)
        except (Invalid, NotFound) as error:
            return error
        return None

    def _known_route(self, topic: str) -> Route:
        """The queues of a topic; a topic that does not exist is looked up once."""
        if topic in self._missing:
            raise self._missing[topic]
        try:
            return self._route_of(topic)
        except NotFound as error:
            self._missing[topic] = error
            raise


def copies(invalid: list[InvalidRow], topic: str, *, is_repeatable: bool) -> Iterator[Any]:
    """Yield the messages that keep invalid rows, as Arrow batches of one row.

    The body is the row as JSON, with binary values in base64. It is cut at the maximum of a body. The properties have
    the reason. In a repeatable write the creation time is that of the row, or 1970, because a repeated task must write
    equal rows.
    """
    for row, error in invalid:
        columns = {name: column[0].as_py() for name, column in zip(row.schema.names, row.columns, strict=True)}
        body = json.dumps(columns, default=_plain).encode()
        reason = without_control_characters(error.message)[:REASON_LENGTH_MAX]
        properties = {"INVALID_FIELD": error.field, "INVALID_REASON": reason}
        if len(body) > BODY_BYTES_MAX:
            properties["INVALID_ROW_BYTES"] = str(len(body))
        copy: dict[str, Any] = {
            "topic": pa.array([topic]),
            "body": pa.array([body[:BODY_BYTES_MAX]], pa.binary()),
            "properties": pa.array([[(name, text) for name, text in properties.items() if text]], _PROPERTIES),
        }
        if is_repeatable:
            born_at = columns.get("born_at")
            is_usable = isinstance(born_at, datetime.datetime) and born_at >= _EPOCH
            copy["born_at"] = pa.array([born_at if is_usable else _EPOCH], pa.timestamp("us", tz="UTC"))
        yield pa.RecordBatch.from_arrays(list(copy.values()), names=list(copy))


def _plain(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


_PROPERTIES = pa.map_(pa.string(), pa.string())
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
