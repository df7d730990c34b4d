"""Dead letters of a group, and what comes next in a topic: an operator's look at messages without taking them."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Sql
from ortoo.client.core.place import Queue
from ortoo.common.records.message import Message
from ortoo.v1 import dead_letter_pb2 as pb
from ortoo.v1 import record_pb2, topic_pb2
from ortoo.v1.dead_letter_pb2_grpc import DeadLetterServiceStub


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a group could not process."""

    message_id: str
    queue: Queue
    """Where the dead letter lies."""
    offset: int
    reason: str
    """"attempts": all were used; "asked": a consumer asked for it."""
    attempts: int
    error: str
    """What the last consumer said."""
    consumer: str
    origin_queue: Queue
    """Where the message lay."""
    origin_offset: int
    parked_at_ms: int
    replayed: bool
    """Whether it was sent again."""
    message: Message
    """As its producer sent it."""


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far a replay has come."""

    replayed_messages: int
    """Sent again so far; in a dry run: to be sent."""
    seen_messages: int
    skipped_messages: int
    """Seen, and sent again before."""
    done: bool


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message that is next for a group."""

    message_id: str
    queue: Queue
    offset: int
    stored_at_ms: int
    attempts: int
    """How often the group had it."""
    message: Message


def dead_letters(
    connection: Connection, group: str, where: Sql | None, *, letters_max: int, with_replayed: bool
) -> AsyncIterator[DeadLetter]:
    """The dead letters of a group, by enode, oldest first."""
    request = pb.ListDeadLettersRequest(
        group=group, where=_expression(where), letters_max=letters_max, with_replayed=with_replayed
    )
    return _streamed(connection, "ListDeadLetters", request, _letter)


def replay(
    connection: Connection,
    group: str,
    where: Sql | None,
    *,
    to_topic: str,
    messages_per_s: int,
    messages_max: int,
    dry_run: bool,
) -> AsyncIterator[ReplayProgress]:
    """Send dead letters again; each item says how far it has come."""
    request = pb.ReplayDeadLettersRequest(
        group=group,
        where=_expression(where),
        to_topic=to_topic,
        messages_per_s=messages_per_s,
        messages_max=messages_max,
        dry_run=dry_run,
    )
    return _streamed(connection, "ReplayDeadLetters", request, _progress)


async def peek(connection: Connection, topic: str, group: str, messages_max: int) -> list[PeekedMessage]:
    """The next messages of a topic."""
    request = pb.PeekRequest(topic=topic, group=group, messages_max=messages_max)
    answer = await connection.call(DeadLetterServiceStub, "Peek", request)
    return [_peeked(one) for one in answer.messages]


async def _streamed(connection: Connection, method: str, request: Any, read: Any) -> AsyncIterator[Any]:
    async with aclosing(connection.stream(DeadLetterServiceStub, method, request)) as answers:
        async for answer in answers:
            yield read(answer)


def _expression(where: Sql | None) -> str:
    return where.expression if where is not None else ""


def _letter(letter: pb.DeadLetter) -> DeadLetter:
    return DeadLetter(
        letter.message_id,
        _queue(letter.queue),
        letter.offset,
        letter.reason,
        letter.attempts,
        letter.error,
        letter.consumer,
        _queue(letter.origin_queue),
        letter.origin_offset,
        letter.parked_at_ms,
        letter.replayed,
        _message(letter.message),
    )


def _progress(progress: pb.ReplayProgress) -> ReplayProgress:
    return ReplayProgress(progress.replayed_messages, progress.seen_messages, progress.skipped_messages, progress.done)


def _peeked(peeked: pb.PeekedMessage) -> PeekedMessage:
    return PeekedMessage(
        peeked.message_id,
        _queue(peeked.queue),
        peeked.offset,
        peeked.stored_at_ms,
        peeked.attempts,
        _message(peeked.message),
    )


def _queue(queue: topic_pb2.Queue) -> Queue:
    return Queue(queue.topic, queue.enode, queue.queue_id)


def _message(message: record_pb2.Message) -> Message:
    return Message(
        message.body,
        message.tag or None,
        tuple(message.keys),
        message_group=message.message_group or None,
        properties=dict(message.properties),
        message_id=message.message_id or None,
        born_at_ms=message.born_at_ms or None,
    )
