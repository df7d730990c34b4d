"""A handler of a blocking consumer that ends the program."""

from typing import Any

import pytest

from ortoo.client.blocking import connect
from ortoo.testing.pytest_broker import BlockingBroker


@pytest.mark.ortoo(topics=["orders"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_a_handler_is_raised_by_run_and_its_message_is_settled(
    blocking_broker: BlockingBroker, error: type[BaseException]
) -> None:
    """It does not end the loop's thread, so that calls after it work; the message has a failed attempt."""
    attempts: list[int] = []

    def handle(message: Any) -> None:
        attempts.append(message.attempt)
        if message.attempt == 1:
            raise error("enough")
        consumer.stop()

    blocking_broker.send("orders", b"one")
    with connect() as mq, mq.pop_consumer("g", "orders") as consumer:
        with pytest.raises(error, match="enough"):
            consumer.run(handle)
        consumer.run(handle)
    assert attempts == [1, 2]
