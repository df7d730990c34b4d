"""A group that does not consume, for each reason that `ortoo explain` knows: made by real clients in a real cluster."""

import ast
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

import pytest

from ortoo.client import ConsumerSettings, Message, PopSettings, ReceivedMessage, TransactionCheck, TransactionVerdict
from ortoo.common.process.background import Background
from ortoo.snode.rpc.operators.explanation import deliveries, reasons
from tests.console.scene import Scene

HOUR_MS = 3_600_000
READ_ALL = ConsumerSettings(from_beginning=True, ack_interval_ms=10)


class Stuck(NamedTuple):
    """The question of a user: a group and a topic, and one message or all."""

    group: str
    topic: str
    message: str = ""


def known_reasons() -> set[str]:
    """The names of all reasons in the code of the snode."""
    tree = ast.parse(inspect.getsource(reasons))
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and getattr(one.func, "id", "") == "Cause"]
    names = [one.args[0] for one in calls]
    assert names
    assert all(isinstance(one, ast.Constant) for one in names), "each reason has a constant name"
    return {str(one.value) for one in names if isinstance(one, ast.Constant)}


async def sent(scene: Scene, topic: str, count: int = 3, **fields: str) -> list[str]:
    """The ids of messages of a new topic with one queue."""
    await scene.cluster.create_topic(topic, queues=1, enodes=("enode-0",))
    async with scene.mq.producer(topic) as producer:
        return [(await producer.send(Message(b"%d" % number, **fields))).message_id for number in range(count)]  # type: ignore[arg-type]


async def consumed(scene: Scene, group: str, topic: str) -> None:
    """Acknowledge the first message of a topic, so that the group has an offset."""
    async with scene.mq.consumer(group, topic, READ_ALL) as consumer:
        async for message in consumer:
            message.ack()
            return


@contextlib.asynccontextmanager
async def failing(scene: Scene, group: str, topic: str) -> AsyncIterator[None]:
    """A push consumer whose handler fails at every message."""

    async def fail(message: ReceivedMessage) -> None:
        raise RuntimeError("the shop is closed")

    async with scene.mq.consumer(group, topic, READ_ALL) as consumer, Background("consumer") as background:
        background.spawn("consumer", consumer.run(fail))
        yield


@contextlib.asynccontextmanager
async def permission(scene: Scene) -> AsyncIterator[Stuck]:
    """The topic may not be read."""
    await sent(scene, "unreadable")
    await scene.mq.admin.update_topic("unreadable", permission="write_only")
    yield Stuck("readers", "unreadable")


@contextlib.asynccontextmanager
async def unknown_group(scene: Scene) -> AsyncIterator[Stuck]:
    """A misspelled group."""
    await sent(scene, "of-others")
    yield Stuck("misspelled", "of-others")


@contextlib.asynccontextmanager
async def group_disabled(scene: Scene) -> AsyncIterator[Stuck]:
    """A paused group."""
    await sent(scene, "of-paused")
    await scene.mq.admin.groups.update("paused", consume_enabled=False)
    yield Stuck("paused", "of-paused")


@contextlib.asynccontextmanager
async def enode_unavailable(scene: Scene) -> AsyncIterator[Stuck]:
    """An enode away."""
    await scene.cluster.create_topic("away", queues=1)
    await scene.mq.admin.put_group("waiting")
    await scene.cluster.close("enode-1")
    try:
        yield Stuck("waiting", "away")
    finally:
        await scene.cluster.open_enode("enode-1")


@contextlib.asynccontextmanager
async def behind_another_message(scene: Scene) -> AsyncIterator[Stuck]:
    """A failed message of the same message group."""
    ids = await sent(scene, "ordered", message_group="a")
    settings = PopSettings(in_order=True, messages_max=1)
    async with scene.mq.pop_consumer("in-order", "ordered", "*", settings) as popping:
        [message] = await popping.pop(wait_ms=10_000)
        await message.nack(HOUR_MS, error="no such customer")
        yield Stuck("in-order", "ordered", ids[1])


@contextlib.asynccontextmanager
async def slow_consumer(scene: Scene) -> AsyncIterator[Stuck]:
    """A handler that hangs, in a group that evicts slow members soon."""
    await sent(scene, "hanging", 5)
    await scene.mq.admin.groups.update("sleepers", slow_consumer_threshold_messages=1, slow_consumer_grace_ms=300)

    async def hang(message: ReceivedMessage) -> None:
        if message.offset:
            await scene.cluster.clock.sleep(HOUR_MS)

    async with scene.mq.consumer("sleepers", "hanging", READ_ALL) as consumer, Background("consumer") as background:
        background.spawn("consumer", consumer.run(hang))
        yield Stuck("sleepers", "hanging")


@contextlib.asynccontextmanager
async def silent_consumer(scene: Scene) -> AsyncIterator[Stuck]:
    """A push consumer that receives and acknowledges nothing."""
    await sent(scene, "unacknowledged")
    async with scene.mq.consumer("silent", "unacknowledged", READ_ALL) as consumer:
        async for _ in consumer.batches():
            break
        yield Stuck("silent", "unacknowledged")


@contextlib.asynccontextmanager
async def consumer_lag(scene: Scene) -> AsyncIterator[Stuck]:
    """A consumer with more messages than it has acknowledged. After some seconds it would count as silent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deliveries, "SILENT_MS", HOUR_MS)
        async with silent_consumer_of(scene, "slow", "lagging") as stuck:
            yield stuck


@contextlib.asynccontextmanager
async def silent_consumer_of(scene: Scene, group: str, topic: str) -> AsyncIterator[Stuck]:
    """A push consumer that has just received messages."""
    await sent(scene, topic)
    async with scene.mq.consumer(group, topic, READ_ALL) as consumer:
        async for _ in consumer.batches():
            break
        yield Stuck(group, topic)


@contextlib.asynccontextmanager
async def expired(scene: Scene) -> AsyncIterator[Stuck]:
    """An expired message, in a group that has not consumed it."""
    await scene.cluster.create_topic("fresh", queues=1, enodes=("enode-0",))
    async with scene.mq.producer("fresh") as producer:
        receipt = await producer.send(Message(b"x", expire_at_ms=scene.cluster.clock.now_ms() + 1))
    await scene.mq.admin.put_group("late")
    yield Stuck("late", "fresh", receipt.message_id)


@contextlib.asynccontextmanager
async def leased(scene: Scene) -> AsyncIterator[Stuck]:
    """A message that a consumer holds."""
    [message_id] = await sent(scene, "held", 1)
    async with scene.mq.pop_consumer("holders", "held") as popping:
        await popping.pop(wait_ms=10_000)
        yield Stuck("holders", "held", message_id)


@contextlib.asynccontextmanager
async def delayed(scene: Scene) -> AsyncIterator[Stuck]:
    """A failed message that is delivered again in an hour."""
    [message_id] = await sent(scene, "failed", 1)
    async with scene.mq.pop_consumer("failers", "failed") as popping:
        [message] = await popping.pop(wait_ms=10_000)
        await message.nack(HOUR_MS, error="the card was declined")
        yield Stuck("failers", "failed", message_id)


@contextlib.asynccontextmanager
async def other_filter(scene: Scene) -> AsyncIterator[Stuck]:
    """A message whose tag no consumer of the group wants."""
    await scene.cluster.create_topic("tagged", queues=1, enodes=("enode-0",))
    async with scene.mq.producer("tagged") as producer:
        await producer.send(Message(b"wanted", tag="blue"))
        async with scene.mq.consumer("blue-only", {"tagged": "blue"}, READ_ALL) as consumer:
            async for _ in consumer.batches():
                break  # never acknowledged, so that the next message waits
            receipt = await producer.send(Message(b"other", tag="red"))
            yield Stuck("blue-only", "tagged", receipt.message_id)


@contextlib.asynccontextmanager
async def no_consumers(scene: Scene) -> AsyncIterator[Stuck]:
    """A group whose consumer has left."""
    await sent(scene, "left")
    await consumed(scene, "leavers", "left")
    yield Stuck("leavers", "left")


@contextlib.asynccontextmanager
async def not_subscribed(scene: Scene) -> AsyncIterator[Stuck]:
    """A group whose consumers have another topic."""
    await sent(scene, "former")
    await consumed(scene, "movers", "former")
    await sent(scene, "present")
    async with scene.mq.consumer("movers", "present"):
        yield Stuck("movers", "former")


@contextlib.asynccontextmanager
async def no_pop_requests(scene: Scene) -> AsyncIterator[Stuck]:
    """A pop consumer that does not pop."""
    await sent(scene, "unpopped")
    async with scene.mq.pop_consumer("idle", "unpopped", settings=PopSettings(messages_max=1)) as popping:
        [message] = await popping.pop(wait_ms=10_000)
        await message.ack()
        yield Stuck("idle", "unpopped")


@contextlib.asynccontextmanager
async def retrying(scene: Scene) -> AsyncIterator[Stuck]:
    """A push consumer that fails at each message."""
    await sent(scene, "retried")
    await scene.mq.admin.groups.update("retriers", retry="list:1h")
    async with failing(scene, "retriers", "retried"):
        yield Stuck("retriers", "retried")


@contextlib.asynccontextmanager
async def in_flight(scene: Scene) -> AsyncIterator[Stuck]:
    """A group that may have one message in flight, and has it."""
    await sent(scene, "limited")
    await scene.mq.admin.groups.update("one-by-one", in_flight_max=1)
    async with scene.mq.pop_consumer("one-by-one", "limited") as popping:
        await popping.pop(wait_ms=10_000)
        await popping.pop(wait_ms=0)
        yield Stuck("one-by-one", "limited")


@contextlib.asynccontextmanager
async def failing_handler(scene: Scene) -> AsyncIterator[Stuck]:
    """A message that has failed several times."""
    await sent(scene, "poison", 1)
    async with scene.mq.pop_consumer("victims", "poison") as popping:
        for _ in range(reasons.FAILING_ATTEMPTS_MIN):
            messages = await popping.pop(wait_ms=10_000)
            delay_ms = HOUR_MS if messages[0].attempt >= reasons.FAILING_ATTEMPTS_MIN else 0
            await messages[0].nack(delay_ms, error="cannot parse")
        yield Stuck("victims", "poison")


@contextlib.asynccontextmanager
async def queued(scene: Scene) -> AsyncIterator[Stuck]:
    """A message that no consumer has requested yet."""
    ids = await sent(scene, "waiting")
    async with scene.mq.pop_consumer("takers", "waiting", settings=PopSettings(messages_max=1)) as popping:
        await popping.pop(wait_ms=10_000)
        yield Stuck("takers", "waiting", ids[2])


@contextlib.asynccontextmanager
async def acknowledged(scene: Scene) -> AsyncIterator[Stuck]:
    """A message that is finished."""
    [message_id] = await sent(scene, "finished", 1)
    async with scene.mq.pop_consumer("finishers", "finished") as popping:
        [message] = await popping.pop(wait_ms=10_000)
        await message.ack()
    yield Stuck("finishers", "finished", message_id)


@contextlib.asynccontextmanager
async def parked(scene: Scene) -> AsyncIterator[Stuck]:
    """A dead letter."""
    [message_id] = await sent(scene, "given-up", 1)
    async with scene.mq.pop_consumer("parkers", "given-up") as popping:
        [message] = await popping.pop(wait_ms=10_000)
        await message.park("no such account")
    yield Stuck("parkers", "given-up", message_id)


@contextlib.asynccontextmanager
async def not_due(scene: Scene) -> AsyncIterator[Stuck]:
    """A delayed message."""
    await scene.cluster.create_topic("later", queues=1, enodes=("enode-0",))
    async with scene.mq.producer("later") as producer:
        receipt = await producer.send(Message(b"x", deliver_at_ms=scene.cluster.clock.now_ms() + HOUR_MS))
    yield Stuck("patient", "later", receipt.message_id)


@contextlib.asynccontextmanager
async def open_transaction(scene: Scene) -> AsyncIterator[Stuck]:
    """A message of an open transaction."""
    await scene.cluster.create_topic("transfers", queues=1, enodes=("enode-0",))

    async def undecided(check: TransactionCheck) -> TransactionVerdict:
        return TransactionVerdict.UNKNOWN

    async with scene.mq.transactional_producer("transfers", "banks", undecided) as producer:
        transaction = await producer.begin(Message(b"half", message_id="transfer-9"))
        yield Stuck("bookkeepers", "transfers", "transfer-9")
        await transaction.rollback()


@contextlib.asynccontextmanager
async def no_backlog(scene: Scene) -> AsyncIterator[Stuck]:
    """Everything is consumed."""
    await sent(scene, "empty", 1)
    await consumed(scene, "done", "empty")
    async with scene.mq.consumer("done", "empty"):
        yield Stuck("done", "empty")


@contextlib.asynccontextmanager
async def unread_for_long(scene: Scene) -> AsyncIterator[Stuck]:
    """Messages that no consumer reads, in a cluster that keeps them for some seconds."""
    await sent(scene, "old")
    await consumed(scene, "forgetful", "old")
    async with scene.mq.producer("old") as producer:
        await producer.send(b"newest")
    yield Stuck("forgetful", "old")


Making = Callable[[Scene], AbstractAsyncContextManager[Stuck]]
SCENARIOS: Mapping[str, Making] = {
    "permission": permission,
    "unknown group": unknown_group,
    "group disabled": group_disabled,
    "enode unavailable": enode_unavailable,
    "behind another message": behind_another_message,
    "slow consumer": slow_consumer,
    "silent consumer": silent_consumer,
    "consumer lag": consumer_lag,
    "expired": expired,
    "leased": leased,
    "delayed": delayed,
    "filter": other_filter,
    "no consumers": no_consumers,
    "not subscribed": not_subscribed,
    "no pop requests": no_pop_requests,
    "retrying": retrying,
    "in flight": in_flight,
    "failing handler": failing_handler,
    "queued": queued,
    "acknowledged": acknowledged,
    "parked": parked,
    "not due": not_due,
    "open transaction": open_transaction,
    "no backlog": no_backlog,
}
OF_RETENTION = ("retention nearly used up", "lost to retention")
"""Reasons in a cluster that keeps messages for some seconds, in the order in which they appear."""
