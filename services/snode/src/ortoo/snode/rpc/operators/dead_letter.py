"""DeadLetterService: list and replay dead letters, and peek at messages."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid
from ortoo.common.filters.message_filter import compile_filter
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import read, write
from ortoo.common.records.text_rules import whole_number, without_system_properties
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.cluster.wire import decode_queue
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.snode.pop.dead_letters import DeadLetter, DeadLetters, PeekedMessage, ReplayOptions, ReplayState
from ortoo.snode.rpc.conversion import body_text
from ortoo.snode.rpc.streams import LongCalls
from ortoo.v1 import dead_letter_pb2 as pb
from ortoo.v1 import dead_letter_pb2_grpc, record_pb2, topic_pb2

NAME = pb.DESCRIPTOR.services_by_name["DeadLetterService"].full_name
PEEK_DEFAULT, PEEK_MAX = 10, 1_024


@dataclass(eq=False)
class DeadLetterService(dead_letter_pb2_grpc.DeadLetterServiceServicer):
    """Lists and replays dead letters."""

    dead_letters: DeadLetters
    long_calls: LongCalls
    check_group_exists: Callable[[str], Awaitable[None]]
    """Raises NotFound for a group that does not exist."""

    async def ListDeadLetters(
        self, request: pb.ListDeadLettersRequest, context: Context
    ) -> AsyncIterator[pb.DeadLetter]:
        """The dead letters of a group, without those of topics that the caller may not read."""
        check_group_name(request.group)
        message_filter = compile_filter("", request.condition)
        await self.check_group_exists(request.group)
        sent_count, may_read = 0, PRINCIPAL.get().may_read
        with self.long_calls.track():
            async for dead_letter in self.dead_letters.list_dead_letters(
                request.group,
                message_filter,
                include_replayed=request.include_replayed,
                after=_decode_place(request),
                expected=request.dead_letters_max,
            ):
                if not may_read(dead_letter.message.properties.get("DLQ_ORIGIN_TOPIC", "") or dead_letter.queue.topic):
                    continue
                yield _encode_dead_letter(dead_letter)
                sent_count += 1
                if sent_count == request.dead_letters_max:
                    return

    async def ReplayDeadLetters(
        self, request: pb.ReplayDeadLettersRequest, context: Context
    ) -> AsyncIterator[pb.ReplayProgress]:
        """Send dead letters again, except those that were replayed before."""
        check_group_name(request.group)
        replay = read(ReplayOptions, request, message_filter=compile_filter("", request.condition))
        progress = ReplayState()
        with self.long_calls.track():
            async for progress in self.dead_letters.replay(replay):
                yield _encode_progress(progress, done=False)
            yield _encode_progress(progress, done=True)

    async def Peek(self, request: pb.PeekRequest, context: Context) -> pb.PeekResponse:
        """The next messages that a group would receive from a topic."""
        if request.group:
            check_group_name(request.group)
        count = request.messages_max or PEEK_DEFAULT
        if count > PEEK_MAX:
            raise Invalid(f"{count}; give at most {PEEK_MAX}", field="messages_max")
        peeked, more = await self.dead_letters.peek(request.topic, request.group, count, request.skip)
        return pb.PeekResponse(messages=map(_encode_peeked, peeked), more=more)


def _decode_place(request: pb.ListDeadLettersRequest) -> tuple[Queue, int] | None:
    """The place of the dead letter after which the list continues."""
    return (decode_queue(request.after_queue), request.after_offset) if request.HasField("after_queue") else None


def _encode_progress(progress: ReplayState, *, done: bool) -> pb.ReplayProgress:
    return pb.ReplayProgress(
        replayed_messages=progress.replayed_messages,
        scanned_messages=progress.scanned_messages,
        skipped_messages=progress.skipped_messages,
        done=done,
    )


def _encode_dead_letter(dead_letter: DeadLetter) -> pb.DeadLetter:
    properties = dead_letter.message.properties
    sent = dead_letter.message.replace(
        properties=without_system_properties(properties),
        priority=whole_number(properties.get("DLQ_PRIORITY", "")),
        deliver_at_ms=whole_number(properties.get("DLQ_DELIVER_AT_MS", ""), 63),
        expire_at_ms=whole_number(properties.get("DLQ_EXPIRE_AT_MS", ""), 63),
    )
    return write(
        pb.DeadLetter,
        dead_letter,
        reason=properties.get("DLQ_REASON", ""),
        attempts=_number(properties.get("DLQ_ATTEMPTS", "")),
        error=properties.get("DLQ_ERROR", ""),
        consumer=properties.get("DLQ_CONSUMER", ""),
        origin_queue=topic_pb2.Queue(
            topic=properties.get("DLQ_ORIGIN_TOPIC", ""),
            enode=properties.get("DLQ_ORIGIN_ENODE", ""),
            queue_id=_number(properties.get("DLQ_ORIGIN_QUEUE_ID", "")),
        ),
        origin_offset=_number(properties.get("DLQ_ORIGIN_OFFSET", ""), 63),
        parked_at_ms=_number(properties.get("DLQ_PARKED_AT_MS", ""), 63) or dead_letter.stored_at_ms,
        message=write(record_pb2.Message, sent),
        body_text=body_text(dead_letter.message),
        trace_context=dead_letter.message.trace_context or "",
    )


def _encode_peeked(peeked: PeekedMessage) -> pb.PeekedMessage:
    return write(pb.PeekedMessage, peeked, body_text=body_text(peeked.message))


def _number(text: str, bits: int = 31) -> int:
    return whole_number(text, bits) or 0
