"""One failure rule: a message has the same attempts, pauses and end with every kind of consumer.

On virtual time. ORTOO_RULE_SEEDS=50 runs it at length.
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import definition_pb2 as words
from apache.rocketmq.v2 import service_pb2 as calls
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Client, ConsumerSettings, Message, PopSettings, ReceivedMessage, connect
from ortoo.client.pop.popped import PoppedMessage
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.randomness import Randomness
from ortoo.testing.pytest_broker import Broker
from tests.integration.pull_group import PROMPT, beside, until

pytestmark = pytest.mark.ortoo
ATTEMPTS_MAX = 4
DELAYS_S = (2, 5, 11)
LATE_S = 1.5
"""A retry topic is new and its queue is assigned, or a message waits for the next check of due ones."""
MESSAGES = 6
PATIENCE_S = 300


@dataclass
class Handled:
    """The deliveries to one kind of consumer, by message."""

    broker: Broker
    failures: dict[bytes, int]
    """The number of failures of each message before it succeeds."""
    seen: dict[bytes, list[tuple[int, float]]] = field(default_factory=dict)
    """(attempt that the consumer sees, time)."""

    def fails(self, body: bytes, attempt: int) -> bool:
        """Record a delivery; whether its handler fails."""
        times = self.seen.setdefault(body, [])
        times.append((attempt, self.broker.clock.now_ms() / 1000))
        return len(times) <= self.failures[body]

    async def handle(self, message: ReceivedMessage | PoppedMessage) -> None:
        """A handler of this library."""
        if self.fails(message.body, message.attempt):
            raise ValueError("it does not work")

    def history(self, body: bytes) -> list[float]:
        """The pauses between the tries of a message."""
        times = [at_s for _, at_s in self.seen.get(body, [])]
        return [after - before for before, after in pairwise(times)]

    def is_over(self, parked: set[bytes]) -> bool:
        """Whether every message has succeeded or is a dead letter."""
        return all(
            body in parked or len(self.seen.get(body, [])) == failures + 1 for body, failures in self.failures.items()
        )


Consume = Callable[[Client, str, Handled], Awaitable[None]]


async def push(mq: Client, group: str, handled: Handled) -> None:
    """The push consumer of the README."""
    async with mq.consumer(group, "one", ConsumerSettings(from_beginning=True)) as consumer:
        await consumer.run(handled.handle)


async def pull(mq: Client, group: str, handled: Handled) -> None:
    """The pull consumer."""
    async with mq.pull_consumer(group, "one", PROMPT) as consumer:
        await consumer.run(handled.handle)


async def pull_in_order(mq: Client, group: str, handled: Handled) -> None:
    """The pull consumer with one message of a queue at a time."""
    async with mq.pull_consumer(group, "one", PROMPT) as consumer:
        await consumer.run_in_order(handled.handle)


async def pop(mq: Client, group: str, handled: Handled) -> None:
    """The pop consumer."""
    async with mq.pop_consumer(group, "one") as consumer:
        await consumer.run(handled.handle)


async def pop_in_order(mq: Client, group: str, handled: Handled) -> None:
    """The pop consumer with one message of a message group at a time."""
    async with mq.pop_consumer(group, "one", settings=PopSettings(in_order=True)) as consumer:
        await consumer.run(handled.handle)


async def rocketmq(mq: Client, group: str, handled: Handled) -> None:
    """A push consumer like RocketMQ's clients: it gets the back-off and the attempts limit, and reports failures."""
    metadata = (("x-mq-client-id", "rocket-1"), ("x-mq-language", "PYTHON"), ("x-mq-client-version", "5.0.0"))
    named, topic = words.Resource(name=group), words.Resource(name="one")
    wanted = words.FilterExpression(type=words.TAG, expression="*")
    subscription = words.Subscription(
        group=named, subscriptions=[words.SubscriptionEntry(topic=topic, expression=wanted)]
    )
    settings = words.Settings(client_type=words.PUSH_CONSUMER, subscription=subscription)
    async with Channels() as channels:
        stub = MessagingServiceStub(channels.channel_to(mq._connection.address))
        telemetry = stub.Telemetry(metadata=metadata)
        try:
            await telemetry.write(calls.TelemetryCommand(settings=settings))
            answer = await telemetry.read()
            assert isinstance(answer, calls.TelemetryCommand)
            told = answer.settings.backoff_policy
            assert told.max_attempts == ATTEMPTS_MAX
            assert [delay.seconds for delay in told.customized_backoff.next] == list(DELAYS_S)
            request = calls.ReceiveMessageRequest(
                group=named, message_queue=words.MessageQueue(topic=topic, id=-1), filter_expression=wanted,
                batch_size=8, auto_renew=True, long_polling_timeout=Duration(seconds=5),
            )  # fmt: skip
            while True:
                async for part in stub.ReceiveMessage(request, metadata=metadata, timeout=8):
                    if not part.HasField("message"):
                        continue
                    system = part.message.system_properties
                    if handled.fails(part.message.body, system.delivery_attempt):
                        delay = told.customized_backoff.next[min(system.delivery_attempt, len(DELAYS_S)) - 1]
                        change = calls.ChangeInvisibleDurationRequest(
                            group=named, topic=topic, receipt_handle=system.receipt_handle, invisible_duration=delay,
                            message_id=system.message_id,
                        )  # fmt: skip
                        await stub.ChangeInvisibleDuration(change, metadata=metadata, timeout=8)
                    else:
                        entry = calls.AckMessageEntry(receipt_handle=system.receipt_handle)
                        acks = calls.AckMessageRequest(group=named, topic=topic, entries=[entry])
                        await stub.AckMessage(acks, metadata=metadata, timeout=8)
        finally:
            telemetry.cancel()


KINDS = {
    "push": (push, False),
    "push-in-order": (push, True),
    "pull": (pull, False),
    "pull-in-order": (pull_in_order, True),
    "pop": (pop, False),
    "pop-in-order": (pop_in_order, True),
    "rocketmq": (rocketmq, False),
    "rocketmq-in-order": (rocketmq, True),
}


async def _prepared(mq: Client, group: str) -> None:
    await mq.admin.groups.update(group, attempts_max=ATTEMPTS_MAX, retry="list:" + ",".join(f"{s}s" for s in DELAYS_S))


async def _until(broker: Broker, condition: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(PATIENCE_S):
        if await condition():
            return
        await broker.clock.advance("1s")
    raise AssertionError(f"not within {PATIENCE_S} s")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(int(os.environ.get("ORTOO_RULE_SEEDS", "2"))))
async def test_tries_pauses_and_ends_are_the_same_for_everybody(broker: Broker, kind: str, seed: int) -> None:
    """With random failures every kind of consumer has the history of the group's rule.

    A message that fails n times has n + 1 attempts, at most attempts_max; the pauses between are the group's. A dead
    letter has the attempts, the reason, the error, the consumer and its origin, for every kind of consumer.
    """
    consume, in_order = KINDS[kind]
    chance = Randomness(seed)
    failures = {b"m%d" % n: chance.below(ATTEMPTS_MAX + 2) for n in range(MESSAGES)}
    await broker.create_topic("one", queues=1)
    async with connect() as mq:
        await _prepared(mq, kind)
        sent = [
            Message(body, message_group=f"g{n % 2}" if in_order else None, trace_context=f"00-{n:032x}-{n:016x}-01")
            for n, body in enumerate(failures, 1)
        ]
        await broker.send("one", *sent)
        handled = Handled(broker, failures)
        running = beside(consume(mq, kind, handled))
        expected = {body for body, count in failures.items() if count >= ATTEMPTS_MAX}

        async def is_over() -> bool:
            parked = {letter.message.body for letter in await broker.dead_letters(kind)}
            return parked == expected and handled.is_over(parked)

        await _until(broker, is_over)
        running.cancel()
        for body, count in failures.items():
            tries = min(count + 1, ATTEMPTS_MAX)
            assert len(handled.seen[body]) == tries
            assert [attempt for attempt, _ in handled.seen[body]] == list(range(1, tries + 1))
            for pause_s, delay_s in zip(handled.history(body), DELAYS_S, strict=False):
                assert delay_s - 0.01 <= pause_s <= delay_s + LATE_S, (body, handled.seen[body])
        stored = {one.message.body: one for one in await broker.messages("one")}
        for letter in await broker.dead_letters(kind):
            place = stored[letter.message.body]
            assert (letter.reason, letter.attempts) == ("attempts", ATTEMPTS_MAX)
            assert letter.consumer
            assert letter.error == ("the consumer failed" if consume is rocketmq else "ValueError: it does not work")
            assert (letter.origin_queue, letter.origin_offset) == (place.queue, place.offset)
            assert letter.message_id == place.message_id
            assert letter.message.trace_context == place.message.trace_context


async def test_messages_behind_a_failing_one_go_on(broker: Broker) -> None:
    """The push consumer of the README counts attempts, waits and parks; messages without an order do not wait."""
    await broker.create_topic("one", queues=1)
    async with connect() as mq:
        await _prepared(mq, "g")
        await broker.send("one", b"bad", *[b"good %d" % n for n in range(20)])
        handled = Handled(broker, {b"bad": 100, **{b"good %d" % n: 0 for n in range(20)}})
        begun_s = broker.clock.now_ms() / 1000
        running = beside(push(mq, "g", handled))
        await until(lambda: len(handled.seen) == 21)
        assert broker.clock.now_ms() / 1000 - begun_s < DELAYS_S[0]

        async def is_parked() -> bool:
            return [letter.message.body for letter in await broker.dead_letters("g")] == [b"bad"]

        await _until(broker, is_parked)
        await broker.clock.advance("1m")
        assert len(handled.seen[b"bad"]) == ATTEMPTS_MAX
        assert (await mq.admin.describe_lag("g", "one")).lag_messages == 0
        running.cancel()
