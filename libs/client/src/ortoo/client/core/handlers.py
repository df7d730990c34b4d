"""Handles messages whose handler failed: delays, error texts, counted attempts and nacks."""

from collections import OrderedDict
from collections.abc import Sequence

from ortoo.client.core.connection import Connection
from ortoo.client.core.queues import Queue
from ortoo.client.core.received import MessageFields, ReceivedMessage
from ortoo.client.core.wire import wire_queue
from ortoo.common.groups.retry_policy import DELAY_MS_MAX
from ortoo.v1 import pull_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

PARK_LEVEL = -1
"""The delay level of a message that is parked instead of retried."""
ERROR_LENGTH_MAX = 1_024
LOCAL_ATTEMPTS_MAX = 10_000
"""Largest number of messages whose attempts are remembered when their queue is reassigned or the session breaks."""


class RetryLater(Exception):
    """Raised by a handler: the message is not processed and is delivered again later."""

    def __init__(self, delay_level: int = 0, delay_ms: float | None = None, *, count_attempt: bool = True) -> None:
        """`delay_level` is 1 to 18; 0 = the group's retry policy, -1 = park.

        A `delay_ms` of up to a week replaces `delay_level`.

        A `delay_ms` below 0 means no delay. With `count_attempt=False` the delivery does not count as an attempt, for
        failures that the message did not cause.
        """
        super().__init__(f"again at level {delay_level}" if delay_ms is None else f"again in {delay_ms} ms")
        self.delay_level = delay_level
        self.delay_ms = None if delay_ms is None else min(max(0.0, delay_ms), DELAY_MS_MAX)
        self.count_attempt = count_attempt


def error_text(failure: BaseException) -> str:
    """The error text for a dead letter: the cause of a `RetryLater`, otherwise the failure itself."""
    cause = failure.__cause__ if isinstance(failure, RetryLater) else failure
    message = str(failure) if cause is None else f"{type(cause).__name__}: {cause}".removesuffix(": ")
    return message.encode(errors="backslashreplace").decode()  # text that cannot be encoded would block the nack


class LocalAttempts:
    """Counts the failed attempts of messages that one consumer handles in order; the counts are only in memory."""

    def __init__(self) -> None:
        self._attempts: OrderedDict[tuple[int, Queue, int], int] = OrderedDict()

    def start(self, message: ReceivedMessage) -> None:
        """Set the number of earlier attempts of a message, before the message is handled."""
        message.set_local_attempts(self._attempts.get(_message_key(message), 0))

    def attempt_count(self, message: ReceivedMessage) -> int:
        """The number of attempts of a message that has just failed, including the failed attempt."""
        return self._attempts.get(_message_key(message), message.attempt - 1) + 1

    def store(self, message: ReceivedMessage, attempts: int) -> None:
        """Remember the number of attempts of a message that this consumer retries."""
        key = _message_key(message)
        self._attempts[key] = attempts
        self._attempts.move_to_end(key)
        while len(self._attempts) > LOCAL_ATTEMPTS_MAX:
            self._attempts.popitem(last=False)

    def forget(self, message: ReceivedMessage) -> None:
        """Forget a message that is processed or parked."""
        self._attempts.pop(_message_key(message), None)


def _message_key(message: ReceivedMessage) -> tuple[int, Queue, int]:
    return message.topic_id, message.queue, message.offset


async def nack_messages(
    connection: Connection,
    group: str,
    messages: Sequence[ReceivedMessage],
    failure: BaseException,
    attempt_in_order: int,
    *,
    client_id: str,
    attempts_max: int = 0,
    generation: int = 0,
) -> pull_pb2.NackMessagesResponse:
    """Nack messages of one queue: the server delivers them again later or parks them.

    `attempt_in_order` > 0 is the number of attempts of a consumer that keeps the messages and retries them itself. With
    0 the server redelivers the messages to the group. An `attempts_max` of 0 means the group's limit. Errors:
    Unsupported if the server has no retries, Fenced, Unavailable.
    """
    retry = failure if isinstance(failure, RetryLater) else RetryLater()
    request = pull_pb2.NackMessagesRequest(
        group=group,
        queue=wire_queue(messages[0].queue),
        offsets=[message.offset for message in messages],
        delay_level=retry.delay_level,
        attempts_max=attempts_max,
        generation=generation,
        error=error_text(failure)[:ERROR_LENGTH_MAX],
        client_id=client_id,
        uncounted=not retry.count_attempt,
        delay_ms=None if retry.delay_ms is None else int(retry.delay_ms),
        attempt_in_order=attempt_in_order,
    )
    answer: pull_pb2.NackMessagesResponse = await connection.call(ConsumerServiceStub, "NackMessages", request)
    return answer


def log_fields(group: str, message: MessageFields) -> dict[str, object]:
    """Log fields that identify a message of a group."""
    return {"group": group, "queue": str(message.queue), "offset": message.offset, "message_id": message.message_id}
