"""Commands from the server: describe the client, show its stacks, let a group member process one message."""

import asyncio
import sys
import traceback
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from ortoo.client.core.connection import Connection
from ortoo.client.core.received import BatchOwner, ReceivedBatch, ReceivedMessage
from ortoo.client.core.wire import LANGUAGE, client_version, queue_of
from ortoo.client.requests.replies import send_reply
from ortoo.client.requests.requester import ReplyOutcome, Requester
from ortoo.client.sessions.group_view import GroupView
from ortoo.common.errors import NotFound, OrtooError, Unsupported
from ortoo.common.errors.status import failure_of
from ortoo.common.grpc.messages import read
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.common.records.text_rules import COPY_LIMITS
from ortoo.v1 import session_pb2

STACK_LENGTH_MAX = 1 << 20


class GroupMembership(Protocol):
    """Receives the events of one group of the session."""

    def on_members_changed(self, view: GroupView) -> None:
        """Set the current members of the group; also called each time the session is reopened."""

    def on_refused(self, error: OrtooError) -> None:
        """Stop this member, because the server refused it."""

    def running_queues(self) -> list[session_pb2.RunningQueue]:
        """The queues of this member."""

    is_ordered: bool
    """Whether messages of a queue are processed one after another."""

    async def consume_directly(self, message: ReceivedMessage) -> BaseException | None:
        """Process one message now; returns the failure of the handler. Errors: Unsupported without a handler."""


async def run_command(
    command: session_pb2.Command, members: Mapping[str, GroupMembership], connection: Connection
) -> session_pb2.CommandResult:
    """Run a command and return its result; an unknown command gets an Unsupported failure."""
    result = session_pb2.CommandResult(command_id=command.command_id)
    kind = command.WhichOneof("command")
    if kind == "describe_running":
        result.running.CopyFrom(_describe_running(command.describe_running.group, members, connection))
    elif kind == "print_stack":
        result.stack = _stack_text()[:STACK_LENGTH_MAX]
    elif kind == "consume_message":
        member = members.get(command.consume_message.group)
        if member is None:
            error = NotFound(f"the client is no member of {command.consume_message.group!r}", field="group")
            result.failure.CopyFrom(failure_of(error))
        else:
            await _consume_message(command.consume_message, member, connection, result)
    else:
        result.failure.CopyFrom(failure_of(Unsupported(f"this client does not support the command {kind}")))
    return result


def take_reply(command: session_pb2.Command, requester: Requester) -> session_pb2.CommandResult:
    """Give a reply to its request and return the result of the command, without waiting."""
    result = session_pb2.CommandResult(command_id=command.command_id)
    delivery = command.deliver_reply
    try:
        outcome = requester.deliver(delivery.topic, delivery.correlation_id, read(Message, delivery.message))
    except OrtooError as error:
        result.failure.CopyFrom(failure_of(error))
        return result
    is_late = outcome is ReplyOutcome.LATE
    result.reply_outcome = session_pb2.REPLY_OUTCOME_LATE if is_late else session_pb2.REPLY_OUTCOME_ACCEPTED
    return result


def _describe_running(
    group_filter: str, members: Mapping[str, GroupMembership], connection: Connection
) -> session_pb2.RunningDescription:
    described = session_pb2.RunningDescription(
        properties={"client_id": connection.client_id, "language": LANGUAGE, "version": client_version()}
    )
    for group, member in members.items():
        if group_filter in ("", group):
            described.queues.extend(member.running_queues())
    return described


async def _consume_message(
    request: session_pb2.ConsumeMessage,
    member: GroupMembership,
    connection: Connection,
    result: session_pb2.CommandResult,
) -> None:
    began_s = connection.clock.monotonic_s()
    consumed = session_pb2.ConsumeResult()
    try:
        failure = await member.consume_directly(_received_message(request, connection))
    except Unsupported as error:
        result.failure.CopyFrom(failure_of(error))
        return
    except Exception as error:
        failure = error
    if failure is None:
        consumed.succeeded, consumed.orderly = True, member.is_ordered
    else:
        consumed.error = f"{type(failure).__name__}: {failure}"
    consumed.duration_ms = round((connection.clock.monotonic_s() - began_s) * 1000)
    result.consumed.CopyFrom(consumed)


def _received_message(request: session_pb2.ConsumeMessage, connection: Connection) -> ReceivedMessage:
    message = read(Message, request.message)
    message = message.replace(message_id=message.message_id or request.message_id or None)
    batch = ReceivedBatch(
        queue_of(request.queue),
        encode([message], now_ms=connection.clock.now_ms(), limits=COPY_LIMITS),
        topic_id=0,
        first_offset=request.offset,
        next_offset=request.offset + 1,
        stored_at_ms=request.stored_at_ms,
        owner=BatchOwner(reply_call=partial(send_reply, connection)),
    )
    return batch[0]


def _stack_text() -> str:
    """The stacks of all threads and tasks, as text."""
    parts = []
    for thread_id, frame in sys._current_frames().items():
        parts.append(f"thread {thread_id}\n{''.join(traceback.format_stack(frame))}")
    for task in asyncio.all_tasks():
        frames = task.get_stack()
        where = "".join(traceback.format_stack(frames[-1], limit=8)) if frames else ""
        parts.append(f"task {task.get_name()}\n{where}")
    return "\n".join(parts)
