"""A handler that blocks the event loop keeps its message."""

import asyncio
import threading

import pytest

from ortoo.client import PoppedMessage, PopSettings, blocking, connect
from ortoo.common.process.background import Background
from ortoo.testing.pytest_broker import BlockingBroker
from tests.integration.pull_group import until

LEASE_MS = 4_000
"""Longer than a busy machine stops this process, in which the broker also runs."""
BLOCKED_S = 2 * LEASE_MS / 1000


def test_leases_are_renewed_while_the_loop_is_blocked_and_the_log_names_the_line(
    blocking_broker: BlockingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, the lease ended: another worker of the group got the message too, and the log did not name the reason."""
    blocking_broker.port()
    blocking_broker.create_topic("orders")
    blocking_broker.send("orders", b"one")
    attempts: list[int] = []
    begun = threading.Event()

    def work_elsewhere() -> None:
        begun.wait(60)
        with blocking.connect(blocking_broker.address) as mq, mq.pop_consumer("g", "orders") as consumer:
            attempts.extend(message.attempt for message in consumer.pop(wait_ms=BLOCKED_S * 800))

    async def program() -> None:
        handled = asyncio.Event()

        async def handle(message: PoppedMessage) -> None:
            attempts.append(message.attempt)
            begun.set()
            threading.Event().wait(BLOCKED_S)  # blocks the loop
            handled.set()

        async def is_acknowledged() -> bool:
            return (await mq.admin.describe_lag("g", "orders")).lag_messages == 0

        settings = PopSettings(invisible_ms=LEASE_MS)
        async with (
            connect(blocking_broker.address) as mq,
            mq.pop_consumer("g", "orders", settings=settings) as consumer,
            Background("test") as background,
        ):
            background.spawn("run", consumer.run(handle))
            await handled.wait()
            await until(is_acknowledged)

    elsewhere = threading.Thread(target=work_elsewhere)
    elsewhere.start()
    asyncio.run(program())
    elsewhere.join()
    assert attempts == [1]
    blocked = [record.getMessage() for record in caplog.records if "event_loop_blocked" in record.getMessage()]
    assert any("test_blocked_loop.py" in line for line in blocked), blocked
