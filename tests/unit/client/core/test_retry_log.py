"""A client whose servers are away logs each kind of failed attempt once a minute, whatever its number of queues."""

import logging
import re
from collections import Counter

import pytest

from ortoo.client import connect, log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.retry import RetryLog
from ortoo.testing.pytest_broker import Broker
from ortoo.verification.time.virtual_clock import VirtualClock

QUEUES, AWAY_MINUTES = 16, 3


@pytest.mark.ortoo(topics=["orders"])
@pytest.mark.parametrize("role", ["enode", "snode"])
@pytest.mark.parametrize("kind", ["pull", "pop"])
async def test_an_outage_is_logged_once_a_minute(
    broker: Broker, caplog: pytest.LogCaptureFixture, role: str, kind: str
) -> None:
    """Before, a pull consumer wrote a line for each queue and attempt, hundreds in a minute."""
    await broker.create_topic("wide", queues=QUEUES)

    async def handle(_: object) -> None:
        pass

    async with connect() as mq, Background("test") as background:
        made = mq.pull_consumer("g", "wide") if kind == "pull" else mq.pop_consumer("g", "wide")
        async with made as consumer:
            running = background.spawn("run", consumer.run(handle))
            await broker.clock.advance("5s")
            caplog.clear()
            with caplog.at_level(logging.WARNING, "ortoo"):
                broker.kill(role, back_after=f"{AWAY_MINUTES}m")
                await broker.clock.advance(f"{AWAY_MINUTES}m")
            await broker.clock.advance("1m")
            running.cancel()
    lines = Counter(re.findall(r"^WARNING  ortoo.*?:\d+ (\w+)", caplog.text, re.M))
    assert lines, "the outage is in the log"
    del lines["queue_lock_lost"]  # a change of one queue, not an attempt
    assert max(lines.values()) <= AWAY_MINUTES + 1, lines


def test_a_later_line_has_the_number_of_omitted_ones(caplog: pytest.LogCaptureFixture) -> None:
    """Each kind is counted alone, and the count starts again with each line."""
    clock, log = VirtualClock(), get_logger("test")
    retry_log = RetryLog(clock)
    for after_s in (0, 1, 58, 1, 60):
        clock.advance(after_s)
        retry_log.emit(log, log_events.POP_FAILED_RETRYING, "away")
    retry_log.emit(log, log_events.PULL_FAILED_RETRYING, "away")
    said = [record.message.split(maxsplit=1) for record in caplog.records]
    assert [name for name, _ in said] == ["pop_failed_retrying"] * 3 + ["pull_failed_retrying"]
    assert ["omitted_lines=2" in rest for _, rest in said] == [False, True, False, False]
