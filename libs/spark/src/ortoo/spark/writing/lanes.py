"""Groups rows into lanes: runs of rows for one destination that keep their order and have their own ids."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ortoo.client import Queue
from ortoo.client.produce.routes import Route
from ortoo.common.errors import Invalid
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.columns import Presence
from ortoo.common.records.compression import Codec
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.spark.core.columns import MESSAGE_TABLE
from ortoo.spark.writing.record_encoder import BatchCutter


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """The identity of a sender of batches. Producer ids derive from it, so that an enode recognizes a repeated batch.

    Without `nonce`, all attempts of a task of a query's batch have the same identity. With `nonce`, each attempt has an
    identity of its own.
    """

    sink: str
    """The id of the sink, the query, or the job."""
    batch_id: int
    partition_id: int
    nonce: str = ""

    @classmethod
    def of_attempt(cls, randomness: Randomness) -> "TaskIdentity":
        """The identity of a single attempt of a task, with a random nonce."""
        return cls("", 0, 0, randomness.id_text() + randomness.id_text())

    def producer_id(self, lane: str) -> int:
        """The producer id of this sender for one lane: 64 bits, never 0."""
        text = "\x1f".join((self.sink, str(self.batch_id), str(self.partition_id), self.nonce, lane))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") or 1


@dataclass(frozen=True, slots=True)
class AddressedBatch:
    """A sealed batch with its producer id and sequence, and the queue to which it is sent."""

    queue: Queue
    topic_id: int
    batch: SealedBatch


class Lanes:
    """Sorts the rows of one task into lanes, with operations on whole columns."""

    def __init__(self, routes: Callable[[str], Route], identity: TaskIdentity, codec: Codec) -> None:
        """`routes` returns the queues of a topic."""
        self._routes = routes
        self._identity = identity
        self._codec = codec
        self._lanes: dict[tuple[object, ...], _Lane] = {}

    def add(self, rows: Any, now_ms: int) -> Iterator[AddressedBatch]:
        """Take rows, and yield the batches that are full."""
        for topic, of_topic in _by_text(rows, "topic"):
            route = self._routes(topic)
            for queue, of_queue in _by_queue(of_topic, route, topic):
                for present, of_lane in _by_presence(of_queue, _EXCLUSIVE):
                    yield from self._lane(topic, route, queue, present).add(of_lane, now_ms)

    def finish(self, now_ms: int) -> Iterator[AddressedBatch]:
        """Yield the remaining batches."""
        for lane in self._lanes.values():
            yield from lane.finish(now_ms)

    def _lane(self, topic: str, route: Route, queue: Queue | None, present: tuple[bool, ...]) -> "_Lane":
        key = (topic, queue, *present)  # its text is a part of ids, so that repeated tasks need the same one
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(route, queue, self._identity, self._codec, str(key))
        return lane


class _Lane:
    """One lane: its rows, and the number of messages sent to each queue."""

    def __init__(self, route: Route, queue: Queue | None, identity: TaskIdentity, codec: Codec, name: str) -> None:
        self._topic_id = route.topic_id
        self._queues = (queue,) if queue is not None else route.placed or route.writable
        # Different between tasks, the same in every attempt.
        self._next = (identity.producer_id("queue") >> 1) % len(self._queues)
        self._producer_id = identity.producer_id(name)
        self._sequences: dict[Queue, int] = dict.fromkeys(self._queues, 0)
        self._cutter = BatchCutter(codec, chained=not identity.nonce)

    def add(self, rows: Any, now_ms: int) -> Iterator[AddressedBatch]:
        return map(self._addressed, self._cutter.add(rows, now_ms))

    def finish(self, now_ms: int) -> Iterator[AddressedBatch]:
        return map(self._addressed, self._cutter.finish(now_ms))

    def _addressed(self, batch: SealedBatch) -> AddressedBatch:
        queue = self._queues[self._next]
        self._next = (self._next + 1) % len(self._queues)
        sequence = self._sequences[queue]
        self._sequences[queue] = sequence + batch.count
        return AddressedBatch(
            queue, self._topic_id, replace(batch, producer_id=self._producer_id, first_sequence=sequence)
        )


def _by_text(rows: Any, name: str) -> Iterator[tuple[str, Any]]:
    column = rows.column(name)
    if column.null_count:
        raise Invalid(f"a row has no {name}", field=name)
    rest = rows.drop_columns([name])
    distinct = pc.unique(column).to_pylist()
    for value in distinct:
        yield value, rest if len(distinct) == 1 else rest.filter(pc.equal(column, value))


def _by_queue(rows: Any, route: Route, topic: str) -> Iterator[tuple[Queue | None, Any]]:
    """Rows by the queue that they name or that belongs to their message group; None = any queue."""
    names = set(rows.schema.names)
    if not names & {"message_group", "queue_id"}:
        yield None, rows.drop_columns([name for name in ("enode",) if name in names])
        return
    queues = route.placed or route.writable
    choice = np.full(len(rows), -1, "i8")
    if "message_group" in names:
        choice = _chosen(rows.column("message_group"), lambda group: queues.index(route.queue_of_group(group)))
    if "queue_id" in names:
        named = _named(rows, queues, topic)
        choice = np.where(named >= 0, named, choice)
    rest = rows.drop_columns([name for name in ("queue_id", "enode") if name in names])
    numbers = np.unique(choice)
    for number in numbers:
        part = rest if len(numbers) == 1 else rest.filter(pa.array(choice == number))
        yield (queues[number] if number >= 0 else None), part


def _chosen(column: Any, choose: Callable[[str], int]) -> Any:
    """The number that `choose` returns for the text of each row; -1 for nulls.

    `choose` is called once for each distinct text.
    """
    encoded = column.dictionary_encode()
    numbers = np.array([choose(text) for text in encoded.dictionary.to_pylist()] + [-1], "i8")
    codes = encoded.indices.fill_null(len(numbers) - 1).to_numpy(zero_copy_only=False)
    return numbers[codes]


def _named(rows: Any, queues: tuple[Queue, ...], topic: str) -> Any:
    ids = rows.column("queue_id").cast(pa.string())
    if "enode" in rows.schema.names:
        enodes = rows.column("enode")
        if pc.any(pc.and_(enodes.is_null(), ids.is_valid())).as_py():
            raise Invalid("a row has a queue but no enode; expected both, or neither", field="enode")
        places: Mapping[str, int] = {f"{queue.enode}/{queue.queue_id}": at for at, queue in enumerate(queues)}
        column = pc.binary_join_element_wise(enodes, ids, "/")
    else:
        if len({queue.enode for queue in queues}) > 1:
            raise Invalid(
                f"{topic} has queues on several enodes; add a column with the enode of the queue", field="enode"
            )
        places = {str(queue.queue_id): at for at, queue in enumerate(queues)}
        column = ids

    def place(text: str) -> int:
        if text not in places:
            raise Invalid(f"{topic} has no queue {text}; it has {', '.join(places)}", field="queue_id")
        return places[text]

    return _chosen(column, place)


def _by_presence(rows: Any, names: Sequence[str]) -> Iterator[tuple[tuple[bool, ...], Any]]:
    """Rows grouped by the columns of `names` in which they have a value.

    In a record batch, all rows or none have such a value.
    """
    if not names:
        yield (), rows
        return
    name, *others = names
    column = rows.column(name) if name in rows.schema.names else None
    if column is None or column.null_count in (0, len(rows)):
        parts = [(column is not None and not column.null_count, rows)]
    else:
        valid = column.is_valid()
        parts = [(True, rows.filter(valid)), (False, rows.filter(pc.invert(valid)))]
    for present, part in parts:
        for more, rest in _by_presence(part, others):
            yield (present, *more), rest


_EXCLUSIVE: Final = [
    column.name for column in MESSAGE_TABLE if column.field and column.field.presence is Presence.ALL_OR_NONE
]
"""The columns that a record batch has in all rows or in none."""
