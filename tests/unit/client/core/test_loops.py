"""A client that is used from another event loop or thread than its own is refused at once."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ortoo.client import Client, Conflict, ConsumerSettings, Producer, PullSettings, connect
from ortoo.testing.pytest_broker import BlockingBroker

WORDS = "belongs to another event loop or thread"


def elsewhere(call: Callable[[], Awaitable[object]]) -> BaseException | None:
    """The error of a call on the loop of another thread. Errors: AssertionError when it hangs."""
    raised: list[BaseException] = []

    async def run() -> None:
        await call()

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    return raised[0] if raised else None


def test_every_call_on_another_loop_is_refused_by_name(blocking_broker: BlockingBroker) -> None:
    """Before, such a call hung for two minutes, or worked by luck."""
    blocking_broker.port()
    blocking_broker.create_topic("orders")
    blocking_broker.send("orders", b"one")

    async def program() -> None:
        settings, pull_settings = ConsumerSettings(from_beginning=True), PullSettings(from_beginning=True)
        async with (
            connect(blocking_broker.address) as mq,
            mq.producer("orders") as producer,
            mq.consumer("push", "orders", settings) as push,
            mq.pull_consumer("pull", "orders", pull_settings) as pull,
            mq.pop_consumer("pop", "orders") as pop,
        ):
            [popped] = await pop.pop()
            batch = await pull.poll()
            assert batch is not None
            pushed = await anext(aiter(push))

            async def plain(call: Callable[[], object]) -> None:
                call()

            calls: dict[str, Callable[[], Awaitable[Any]]] = {
                "flush": producer.flush,
                "send": lambda: producer.send(b"two"),
                "request": lambda: producer.request(b"two", timeout_s=20),
                "enqueue_nowait": lambda: plain(lambda: producer.enqueue_nowait(b"two")),
                "pop": pop.pop,
                "pop ack": popped.ack,
                "pop nack": popped.nack,
                "pull": pull.poll,
                "pull ack": lambda: plain(batch.ack),
                "push": lambda: anext(aiter(push.batches())),
                "push ack": lambda: plain(pushed.ack),
                "recall": lambda: mq.recall("handle"),
            }
            for name, call in calls.items():
                error = await asyncio.to_thread(elsewhere, call)
                assert isinstance(error, Conflict), (name, error)
                assert WORDS in str(error), name
            await popped.ack()
            batch.ack()
            pushed.ack()
            await producer.send(b"two")

    asyncio.run(program())


def test_an_acknowledgement_in_a_plain_thread_is_refused(blocking_broker: BlockingBroker) -> None:
    """A thread without a loop, such as that of a handler which is a plain function."""
    blocking_broker.port()
    blocking_broker.create_topic("orders")
    blocking_broker.send("orders", b"one")

    async def program() -> None:
        settings = ConsumerSettings(from_beginning=True)
        async with connect(blocking_broker.address) as mq, mq.consumer("push", "orders", settings) as push:
            message = await anext(aiter(push))
            with pytest.raises(Conflict, match=WORDS):
                await asyncio.to_thread(message.ack)

    asyncio.run(program())


async def begin(address: str) -> tuple[Client, Producer]:
    """A client and a producer with a message."""
    mq = await connect(address)
    producer = await mq.producer("orders")
    producer.enqueue_nowait(b"one")
    return mq, producer


async def end(mq: Client, producer: Producer) -> None:
    """Close both."""
    await producer.close()
    await mq.close()


def test_a_call_on_a_later_loop_of_the_same_thread_is_refused(blocking_broker: BlockingBroker) -> None:
    """Also while the producer has an open batch, which its own loop would have to send."""
    blocking_broker.port()
    blocking_broker.create_topic("orders")

    async def later(producer: Producer) -> None:
        for call in (producer.enqueue(b"two"), producer.send(b"two"), producer.flush()):
            with pytest.raises(Conflict, match=WORDS):
                await call

    with asyncio.Runner() as runner:
        mq, producer = runner.run(begin(blocking_broker.address))
        with asyncio.Runner() as other:
            other.run(later(producer))
        runner.run(end(mq, producer))


def test_a_thread_whose_loop_runs_in_another_thread_is_refused(blocking_broker: BlockingBroker) -> None:
    """Programs connect in the main thread, and run the loop in another thread from then on."""
    blocking_broker.port()
    blocking_broker.create_topic("orders")
    with asyncio.Runner() as runner:
        mq, producer = runner.run(begin(blocking_broker.address))
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(producer.send(b"two"), loop).result(60)
            with pytest.raises(Conflict, match=WORDS):
                producer.enqueue_nowait(b"three")
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
        runner.run(end(mq, producer))
