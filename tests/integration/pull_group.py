"""Pull consumers and the messages that they received, for tests of groups."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from ortoo.client import Client, Message, PullConsumer, PullSettings, Queue, connect
from ortoo.common.process.clock import SystemClock

T = TypeVar("T")

PROMPT = PullSettings(
    from_beginning=True,
    long_poll_ms=2_000,
    lock_retry_ms=200,
    pull_retry_ms=200,
    commit_first_ms=200,
    commit_interval_ms=200,
)
"""Short values for all waiting times."""


def prompt(**changes: Any) -> PullSettings:
    """PROMPT with changes."""
    return replace(PROMPT, **changes)


async def send(mq: Client, bodies: "range | list[bytes]", topic: str = "t", *, spread: bool = False) -> None:
    """Send messages and wait until all are stored; `spread` over all queues of the topic."""
    texts = [body if isinstance(body, bytes) else b"%d" % body for body in bodies]
    async with mq.producer(topic) as producer:
        if spread:
            await (await producer.send_many([Message(it, message_group=str(n % 64)) for n, it in enumerate(texts)]))
        else:
            await (await producer.send_many(texts))


async def only_queue(mq: Client, topic: str) -> Queue:
    """The queue of a topic with one."""
    (item,) = (await mq.admin.describe_topic(topic)).queues
    return item.queue


async def stored_offset(mq: Client, group: str, queue: Queue) -> int | None:
    """The offset that a group has stored for a queue."""
    return await mq.pull_consumer(group).committed(queue)


def beside(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run a coroutine in the background; the test cancels it."""
    return asyncio.get_running_loop().create_task(work)


async def until(condition: Callable[[], bool | Awaitable[bool]], timeout_s: float = 60.0) -> None:
    """Wait for a condition that has no notification. Errors: TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while True:
            value = condition()
            if isinstance(value, bool):
                if value:
                    return
            elif await value:
                return
            await SystemClock().sleep(0.01)


def disjoint(consumers: list[PullConsumer], queue_count: int) -> bool:
    """Whether every queue has exactly one owner among the consumers."""
    owned = [queue for consumer in consumers for queue in consumer.queues]
    return len(owned) == len(set(owned)) == queue_count


def client(address: str, client_id: str) -> Any:
    """Another client of the cluster."""
    return connect(address, client_id=client_id)
