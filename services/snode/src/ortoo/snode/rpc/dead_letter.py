"""DeadLetterService."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid
from ortoo.common.records.message import Message
from ortoo.snode.cluster.wire import message_to, queue_to
from ortoo.snode.filters.selection import compile_filter
from ortoo.snode.pop.dead_letters import DeadLetters, Letter, Peeked, Progress, Replay
from ortoo.snode.rpc.long_calls import LongCalls
from ortoo.v1 import dead_letter_pb2 as pb
from ortoo.v1 import dead_letter_pb2_grpc, topic_pb2

NAME = pb.DESCRIPTOR.services_by_name["DeadLetterService"].full_name
PEEK_DEFAULT, PEEK_MAX = 10, 1_024
Context = grpc.aio.ServicerContext[Any, Any]


class DeadLetterService(dead_letter_pb2_grpc.DeadLetterServiceServicer):
    """Looking after dead letters."""

    def __init__(self, letters: DeadLetters, long_calls: LongCalls) -> None:
        self._letters = letters
        self._long_calls = long_calls

    async def ListDeadLetters(
        self, request: pb.ListDeadLettersRequest, context: Context
    ) -> AsyncIterator[pb.DeadLetter]:
        """The dead letters of a group."""
        check_group_name(request.group)
        where = compile_filter("", request.where)
        given = 0
        with self._long_calls.running():
            async for letter in self._letters.letters(request.group, where, with_replayed=request.with_replayed):
                yield _letter(letter)
                given += 1
                if given == request.letters_max:
                    return

    async def ReplayDeadLetters(
        self, request: pb.ReplayDeadLettersRequest, context: Context
    ) -> AsyncIterator[pb.ReplayProgress]:
        """Send dead letters again, each once."""
        check_group_name(request.group)
        replay = Replay(
            request.group,
            compile_filter("", request.where),
            request.to_topic,
            request.messages_per_s,
            request.messages_max,
            request.dry_run,
        )
        progress = Progress()
        with self._long_calls.running():
            async for progress in self._letters.replay(replay):
                yield _progress(progress, done=False)
            yield _progress(progress, done=True)

    async def Peek(self, request: pb.PeekRequest, context: Context) -> pb.PeekResponse:
        """The next messages of a topic for a group."""
        if request.group:
            check_group_name(request.group)
        count = request.messages_max or PEEK_DEFAULT
        if count > PEEK_MAX:
            raise Invalid(f"{count}; give at most {PEEK_MAX}", field="messages_max")
        return pb.PeekResponse(messages=map(_peeked, await self._letters.peek(request.topic, request.group, count)))


def _progress(progress: Progress, *, done: bool) -> pb.ReplayProgress:
    return pb.ReplayProgress(
        replayed_messages=progress.replayed,
        seen_messages=progress.seen,
        skipped_messages=progress.skipped,
        done=done,
    )


def _letter(letter: Letter) -> pb.DeadLetter:
    told = letter.message.properties
    kept = {name: value for name, value in told.items() if not name.startswith("DLQ_")}
    return pb.DeadLetter(
        message_id=letter.message_id,
        queue=queue_to(letter.queue),
        offset=letter.offset,
        reason=told.get("DLQ_REASON", ""),
        attempts=_number(told.get("DLQ_ATTEMPTS", "")),
        error=told.get("DLQ_ERROR", ""),
        consumer=told.get("DLQ_CONSUMER", ""),
        origin_queue=topic_pb2.Queue(
            topic=told.get("DLQ_ORIGIN_TOPIC", ""),
            enode=told.get("DLQ_ORIGIN_ENODE", ""),
            queue_id=_number(told.get("DLQ_ORIGIN_QUEUE_ID", "")),
        ),
        origin_offset=_number(told.get("DLQ_ORIGIN_OFFSET", "")),
        parked_at_ms=_number(told.get("DLQ_PARKED_AT_MS", "")) or letter.stored_at_ms,
        replayed=letter.replayed,
        message=message_to(letter.message.replace(properties=kept)),
        body_text=_text(letter.message),
        trace_context=letter.message.trace_context or "",
    )


def _peeked(peeked: Peeked) -> pb.PeekedMessage:
    return pb.PeekedMessage(
        message_id=peeked.message_id,
        queue=queue_to(peeked.queue),
        offset=peeked.offset,
        stored_at_ms=peeked.stored_at_ms,
        attempts=peeked.attempts,
        message=message_to(peeked.message),
        body_text=_text(peeked.message),
    )


def _text(message: Message) -> str:
    try:
        return message.body.decode()
    except UnicodeDecodeError:
        return ""


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
