"""Dead letters of a group, and what comes next in a topic: an operator's look at messages without taking them."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Sql
from ortoo.client.core.place import Queue
from ortoo.client.core.wire import plain
from ortoo.common.records.message import Message
from ortoo.v1 import dead_letter_pb2 as pb
from ortoo.v1.dead_letter_pb2_grpc import DeadLetterServiceStub

T = TypeVar("T")


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
    return _streamed(connection, "ListDeadLetters", request, DeadLetter)


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
    return _streamed(connection, "ReplayDeadLetters", request, ReplayProgress)


async def peek(connection: Connection, topic: str, group: str, messages_max: int) -> list[PeekedMessage]:
    """The next messages of a topic."""
    request = pb.PeekRequest(topic=topic, group=group, messages_max=messages_max)
    answer = await connection.call(DeadLetterServiceStub, "Peek", request)
    return [plain(PeekedMessage, one) for one in answer.messages]


async def _streamed(connection: Connection, method: str, request: Any, kind: type[T]) -> AsyncIterator[T]:
    async with aclosing(connection.stream(DeadLetterServiceStub, method, request)) as answers:
        async for answer in answers:
            yield plain(kind, answer)


def _expression(where: Sql | None) -> str:
    return where.expression if where is not None else ""
