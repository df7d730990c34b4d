"""An application that knows only the installed packages: every kind of producer and consumer, and operators' calls.

The tests run it with an address, in environments without this workspace, and mypy checks it there.
"""

import asyncio
import sys
from dataclasses import dataclass

from ortoo.client import (
    App,
    Client,
    ConsumerSettings,
    Message,
    NotFound,
    PoppedMessage,
    PopSettings,
    PullSettings,
    Receipt,
    blocking,
    connect,
)

TOPIC = "install-orders"
BODIES = [b"order %d" % number for number in range(5)]


@dataclass(frozen=True)
class Order:
    """A body that the handlers of an application receive."""

    number: int


async def send(mq: Client) -> None:
    """Send single messages, a batch and a delayed message that is recalled."""
    async with mq.producer(TOPIC) as producer:
        receipt: Receipt = await producer.send(Message(BODIES[0], tag="first", keys=["key-0"]))
        assert receipt.offset == 0
        await asyncio.gather(*(producer.send(Message(body)) for body in BODIES[1:]))
        delayed = await producer.send(Message(b"late", deliver_at_ms=receipt.stored_at_ms + 3_600_000))
        assert delayed.recall_handle
        await mq.recall(delayed.recall_handle)


async def push(mq: Client) -> None:
    """Receive all messages as a member of a group."""
    bodies = []
    async with mq.consumer("install-push", TOPIC, ConsumerSettings(from_beginning=True)) as consumer:
        async for message in consumer:
            bodies.append(message.body)
            message.ack()
            if len(bodies) == len(BODIES):
                break
    assert sorted(bodies) == BODIES, bodies


async def pull(mq: Client) -> None:
    """Read the queues in batches."""
    bodies: list[bytes] = []
    async with mq.pull_consumer("install-pull", TOPIC, PullSettings(from_beginning=True)) as consumer:
        async for batch in consumer.batches():
            bodies += batch.bodies()
            if len(bodies) == len(BODIES):
                break
        await consumer.commit()
    assert sorted(bodies) == BODIES, bodies


async def pop(mq: Client) -> None:
    """Take messages one by one, each with a lease."""
    bodies: list[bytes] = []
    async with mq.pop_consumer("install-pop", TOPIC, settings=PopSettings()) as consumer:
        while len(bodies) < len(BODIES):
            popped: list[PoppedMessage] = await consumer.pop()
            for message in popped:
                bodies.append(message.body)
                await message.ack()
    assert sorted(bodies) == BODIES, bodies


async def handle(mq: Client) -> None:
    """Receive decoded bodies by a declared handler."""
    app = App("install-app")
    received: asyncio.Queue[Order] = asyncio.Queue()

    @app.consumer("install-numbers")
    async def on_order(order: Order) -> None:
        received.put_nowait(order)

    await mq.admin.ensure_topic("install-numbers", queue_count=1)
    async with mq.producer("install-numbers") as producer:
        await producer.send(Message(b'{"number": 7}'))
    async with app.running(mq):
        assert await received.get() == Order(7)


async def operate(mq: Client) -> None:
    """Ask for topics, groups and lag, and get a named error."""
    assert TOPIC in [topic.name for topic in await mq.admin.list_topics()]
    assert "install-push" in [group.name for group in await mq.admin.list_groups()]
    assert (await mq.admin.describe_lag("install-push", TOPIC)).lag_messages == 0
    try:
        await mq.admin.describe_topic("no-such-topic")
    except NotFound:
        return
    raise AssertionError("a topic that does not exist was described")


def block(address: str) -> None:
    """Send and receive without an event loop."""
    with blocking.connect(address) as mq:
        mq.admin.ensure_topic("install-blocking", queue_count=1)
        with mq.producer("install-blocking") as producer:
            producer.send(Message(b"hello"))
        with mq.consumer("install-blocking", "install-blocking", ConsumerSettings(from_beginning=True)) as consumer:
            for message in consumer:
                assert message.body == b"hello"
                consumer.ack(message)
                break


async def main(address: str) -> None:
    """Use every kind of producer and consumer once."""
    async with asyncio.timeout(60), connect(address) as mq:
        await mq.admin.ensure_topic(TOPIC, queue_count=1)
        await send(mq)
        await push(mq)
        await pull(mq)
        await pop(mq)
        await handle(mq)
        await operate(mq)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    block(sys.argv[1])
    sys.stdout.write("every kind of consumer received its messages\n")
