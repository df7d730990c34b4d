"""The outcome of popped messages."""

from collections.abc import Sequence

from ortoo.client.core.handlers import PARK_LEVEL, RetryLater, error_text
from ortoo.client.pop.popped import PopLease, PoppedMessage
from ortoo.common.errors import Fenced
from ortoo.common.groups.delay_levels import delay_ms_of_level


async def settle(message: PoppedMessage, failure: BaseException | None) -> None:
    """Acknowledge the message, or nack or park it after a failure. Errors: as `PoppedMessage.ack`."""
    if failure is None:
        await message.ack()
    elif not isinstance(failure, RetryLater):
        await message.nack(error=error_text(failure))
    elif failure.delay_level == PARK_LEVEL:
        await message.park(error_text(failure))
    else:
        delay_ms = failure.delay_ms
        if delay_ms is None and failure.delay_level > 0:
            delay_ms = delay_ms_of_level(failure.delay_level)
        await message.nack(delay_ms, count_attempt=failure.count_attempt, error=error_text(failure))


def check_not_stale(lease: PopLease, stale: Sequence[int]) -> None:
    """Refuse an outcome that came too late. Errors: Fenced."""
    if stale:
        raise Fenced(
            f"offsets {sorted(stale)} of {lease.batch.queue} no longer belong to this consumer: their lease ended "
            "and they were delivered again",
            field="receipts",
        )
