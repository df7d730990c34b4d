"""The fixture `blocking_broker`: blocking clients on virtual time, and a real port."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ortoo.client import Conflict, ConsumerSettings, HandlerOptions, Message, PullSettings
from ortoo.client.blocking import connect
from ortoo.testing.pytest_broker import BlockingBroker, Broker

FIRST: dict[str, dict[str, Any]] = {
    "consumer": {"settings": ConsumerSettings(from_beginning=True)},
    "pull_consumer": {"settings": PullSettings(from_beginning=True)},
}
pytestmark = pytest.mark.ortoo(topics=["orders", "bills"])


def at_a_time(kind: str, concurrency: int) -> dict[str, Any]:
    """The number of handlers of a consumer's `run`."""
    return (
        {"options": HandlerOptions(concurrency=concurrency)}
        if kind == "pull_consumer"
        else {"concurrency": concurrency}
    )


def test_a_blocking_program_runs_on_virtual_time(blocking_broker: BlockingBroker) -> None:
    """Delayed messages, looks, a killed enode and hours that pass, all by calls that return when they are done."""
    clock = blocking_broker.clock
    with connect() as mq, mq.producer("orders") as producer:
        producer.send(Message(b"later", deliver_at_ms=clock.in_ms("5h")))
        blocking_broker.kill("enode", back_after="3s")
        producer.send(b"now")
        assert [waiting.deliver_at_ms - clock.now_ms() for waiting in blocking_broker.delayed("orders")] == [
            pytest.approx(5 * 3_600_000, abs=60_000)
        ]
        clock.advance(hours=6)
        blocking_broker.restart("snode")
    assert sorted(stored.message.body for stored in blocking_broker.messages("orders")) == [b"later", b"now"]
    assert blocking_broker.delayed("orders") == []
    assert blocking_broker.dead_letters("nobody") == []


def test_a_handler_may_make_blocking_calls(blocking_broker: BlockingBroker) -> None:
    """Handlers run in threads that take turns with the broker: they send, and stop their consumer."""
    threads = set()

    def handler(message: object) -> None:
        threads.add(threading.get_ident())
        bills.send(b"bill for " + message.body)  # type: ignore[attr-defined]
        if len(blocking_broker.messages("bills")) == 3:
            consumer.stop()

    with connect() as mq, mq.producer("bills") as bills, mq.pop_consumer("billing", "orders") as consumer:
        blocking_broker.send("orders", b"1", b"2", b"3")
        consumer.run(handler, concurrency=2)
    assert sorted(stored.message.body for stored in blocking_broker.messages("bills")) == [
        b"bill for 1", b"bill for 2", b"bill for 3",
    ]  # fmt: skip
    assert threading.get_ident() not in threads


def test_iterators_and_pulls_work(blocking_broker: BlockingBroker) -> None:
    """A consumer that is walked with `for`, and one that pulls."""
    blocking_broker.send("orders", b"1", b"2")
    with connect() as mq, mq.pop_consumer("walking", "orders") as consumer:
        seen = []
        for message in consumer:
            seen.append(message.body)
            consumer.ack(message)
            if len(seen) == 2:
                break
    assert sorted(seen) == [b"1", b"2"]
    assert blocking_broker.subscribers("walking").group.name == "walking"


def test_a_thread_of_the_tests_own_is_refused_in_words(blocking_broker: BlockingBroker) -> None:
    """It could not take turns; the error names what can be done."""
    told: list[str] = []

    def work() -> None:
        try:
            producer.send(b"x")
        except Conflict as error:
            told.append(str(error))

    with connect() as mq, mq.producer("orders") as producer:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(told) == 1
    assert "blocking_broker.port()" in told[0]


async def test_a_blocking_call_in_a_coroutine_is_refused_in_words(broker: Broker) -> None:
    """It would stop the loop that it waits for."""
    with pytest.raises(Conflict, match=r"asyncio\.to_thread"), connect():
        pass


def test_a_real_port_is_a_real_broker(blocking_broker: BlockingBroker) -> None:
    """It has the topics of the mark, clients reach it by its address, and there is no virtual time any more."""
    port = blocking_broker.port()
    assert blocking_broker.address == f"127.0.0.1:{port}"
    assert blocking_broker.port() == port
    blocking_broker.send("orders", b"x")
    assert [stored.message.body for stored in blocking_broker.messages("orders")] == [b"x"]
    with pytest.raises(RuntimeError, match="real time"):
        _ = blocking_broker.clock
    with pytest.raises(RuntimeError, match="real time"):
        blocking_broker.kill("enode")


def test_a_port_comes_first(blocking_broker: BlockingBroker) -> None:
    """Messages that were sent on virtual time would be missing."""
    blocking_broker.send("orders", b"x")
    with pytest.raises(RuntimeError, match="before anything else"):
        blocking_broker.port()


def stopping(consumer: Any, bills: Any, seen: list[bytes]) -> Callable[[Any], None]:
    """A handler that stops its consumer, and works on."""

    def handler(message: Any) -> None:
        consumer.stop()
        bills.send(b"the stop is heard before this is stored")
        seen.append(message.body)

    return handler


@pytest.mark.parametrize("kind", ["consumer", "pull_consumer", "pop_consumer"])
def test_what_a_handler_does_while_its_consumer_is_stopped_is_done(kind: str, blocking_broker: BlockingBroker) -> None:
    """A thread runs to its end even if its task is cancelled: its message is not redelivered."""
    seen: list[bytes] = []

    blocking_broker.send("orders", b"1")
    for count in (1, 2, 3):
        with (
            connect() as mq,
            mq.producer("bills") as bills,
            getattr(mq, kind)("stopping", "orders", **FIRST.get(kind, {})) as consumer,
        ):
            blocking_broker.send("orders", b"%d" % (count + 1))
            consumer.run(stopping(consumer, bills, seen))
    assert len(seen) >= 3
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("kind", ["consumer", "pull_consumer", "pop_consumer"])
def test_a_consumer_that_was_stopped_begins_no_other_message(kind: str, blocking_broker: BlockingBroker) -> None:
    """Not even of those that wait in line behind the one that is handled: they go to others."""
    seen: list[bytes] = []

    with connect() as mq, mq.producer("orders") as orders, mq.producer("bills") as bills:
        orders.send_many([Message(b"%d" % number, message_group="a") for number in range(5)])
        with getattr(mq, kind)("stopping", "orders", **FIRST.get(kind, {})) as consumer:
            consumer.run(stopping(consumer, bills, seen), **at_a_time(kind, 1))
    assert seen == [b"0"]


@pytest.mark.parametrize("kind", ["consumer", "pull_consumer", "pop_consumer"])
def test_what_handlers_had_when_their_consumer_was_stopped_is_not_lost_to_it(
    kind: str, blocking_broker: BlockingBroker
) -> None:
    """Several are given out at once, and the first one stops it: it handles the others then, or when it runs again."""
    seen: list[bytes] = []

    def handler(message: Any) -> None:
        seen.append(message.body)
        if len(seen) in (1, 6):
            consumer.stop()

    blocking_broker.send("orders", *(b"%d" % number for number in range(6)))
    with connect() as mq, getattr(mq, kind)("stopping", "orders", **FIRST.get(kind, {})) as consumer:
        while len(seen) < 6:
            consumer.run(handler, **at_a_time(kind, 6))
    assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_what_a_stopped_pull_consumer_has_handled_of_several_comes_not_again(blocking_broker: BlockingBroker) -> None:
    """It took them at once, handled the first, and the next consumer gets the others."""
    seen: list[bytes] = []

    with connect() as mq, mq.producer("orders") as orders, mq.producer("bills") as bills:
        orders.send_many([Message(b"%d" % number, message_group="a") for number in range(5)])
        for _ in range(3):
            with mq.pull_consumer("stopping", "orders", **FIRST["pull_consumer"]) as consumer:
                consumer.run(stopping(consumer, bills, seen), HandlerOptions(concurrency=1, batch_messages_max=5))
    assert seen == [b"0", b"1", b"2"]
