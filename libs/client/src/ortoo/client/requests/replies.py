"""Replies to received requests, and the error of a requester that got none in time."""

from ortoo.client.core.connection import Connection
from ortoo.common.errors import Unavailable
from ortoo.common.groups.requests import RequestOptions
from ortoo.common.grpc.messages import write
from ortoo.common.records.message import Message, message_of
from ortoo.v1 import record_pb2, reply_pb2
from ortoo.v1.reply_pb2_grpc import ReplyServiceStub

ATTEMPT_TIMEOUT_S = 6.0
"""Time limit of one attempt; longer than the time in which a snode gives up."""


class RequestTimeout(Unavailable):
    """No reply to a request came in time. The request may still be processed, and its reply is then dropped."""

    def __init__(self, topic: str, correlation_id: str, timeout_s: float, *, is_stored: bool, reason: str = "") -> None:
        """`is_stored`: the request was stored; False = not known. `reason` is the error of the last attempt."""
        state = "although the request was stored" if is_stored else "and no snode confirmed that the request is stored"
        state += f" ({reason})" if reason else ""
        super().__init__(
            f"no reply to request {correlation_id} in topic {topic} within {timeout_s:g} s, {state}; check that a "
            "consumer of the topic replies, or wait longer with `timeout_s`"
        )
        self.topic = topic
        self.correlation_id = correlation_id
        self.timeout_s = timeout_s


async def send_reply(
    connection: Connection, topic: str, request: RequestOptions, born_at_ms: int | None, reply: Message | bytes
) -> bool:
    """Give the reply to the requester; returns whether the requester still waited.

    Retries through other snodes until the requester's timeout has passed, and makes at least one attempt. Errors:
    Invalid, Forbidden (the user may not consume the topic), Unavailable (the requester did not confirm in time).
    """
    message = message_of(reply)
    message.check("reply")
    clock = connection.clock
    left_ms = request.timeout_ms if born_at_ms is None else born_at_ms + request.timeout_ms - clock.now_ms()
    # The clock of the requester's machine may be ahead, so the limit is at most the whole timeout.
    deadline_s = clock.monotonic_s() + min(left_ms, request.timeout_ms) / 1000
    wire = reply_pb2.ReplyRequest(
        topic=topic,
        correlation_id=request.correlation_id,
        reply_to=request.reply_to,
        message=write(record_pb2.Message, message),
    )
    answer = await connection.call(ReplyServiceStub, "Reply", wire, timeout_s=ATTEMPT_TIMEOUT_S, deadline_s=deadline_s)
    return not answer.late
