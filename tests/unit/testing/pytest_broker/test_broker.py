"""The fixture `broker`: its views for tests, the passage of time, and its faults."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from ortoo.client import Client, Message, OrtooError, RetryLater, connect
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.testing.pytest_broker import Broker
from ortoo.testing.pytest_broker.faults import ActiveFault

pytestmark = pytest.mark.ortoo(topics=["orders"])


@pytest.fixture
async def mq(broker: Broker) -> AsyncIterator[Client]:
    """A client, made by an asynchronous fixture: it lives on the broker's loop as the test does."""
    async with connect() as client:
        yield client


async def test_what_is_stored_and_what_waits_is_shown(broker: Broker, mq: Client) -> None:
    """Messages, delayed messages with their time, and the positions of groups."""
    await broker.create_topic("others", queues=1)
    at_ms = broker.clock.in_ms("2d")
    await broker.send("others", b"one", Message(b"two"), Message(b"later", deliver_at_ms=at_ms))
    async with mq.consumer("group", "others") as consumer:
        await broker.clock.advance(seconds=1)
        assert consumer.queues
        described = await broker.subscribers("group")
    assert [stored.message.body for stored in await broker.messages("others")] == [b"one", b"two"]
    assert [waiting.deliver_at_ms for waiting in await broker.delayed("others")] == [at_ms]
    assert [member.topics for member in described.members] == [("others",)]
    assert await broker.dead_letters("group") == []


async def test_time_passes_in_order_and_over_nothing(broker: Broker, mq: Client) -> None:
    """Each delayed message arrives within a second of its time. So do its consequences, and timers of the test."""
    came: list[tuple[bytes, int]] = []
    begun_ms = broker.clock.now_ms()

    def note(what: bytes) -> None:
        came.append((what, (broker.clock.now_ms() - begun_ms + 500) // 60_000))

    async def later() -> None:
        await SystemClock().sleep(45 * 60)  # of the loop, as an application does
        note(b"slept")

    async def handler(message: object) -> None:
        body: bytes = message.body  # type: ignore[attr-defined]
        note(body)
        if body == b"30":
            await broker.send("orders", Message(b"30 + 20", deliver_at_ms=broker.clock.in_ms("20m")))
        if body == b"90" and len(came) < 5:
            raise RetryLater(delay_ms=3_600_000)

    async with mq.pop_consumer("group", "orders") as consumer, Background("test") as background:
        background.spawn("run", consumer.run(handler))
        background.spawn("sleeper", later())
        for minutes in (90, 30):
            at_ms = broker.clock.in_ms(minutes * 60)
            await broker.send("orders", Message(str(minutes).encode(), deliver_at_ms=at_ms))
        sent_ms = broker.clock.now_ms()
        await broker.clock.advance(hours=3)
        passed_ms = broker.clock.now_ms() - sent_ms
    assert came == [(b"30", 30), (b"slept", 45), (b"30 + 20", 50), (b"90", 90), (b"90", 150)]
    assert passed_ms == 3 * 3_600_000


async def test_a_handler_that_is_at_work_keeps_its_message_while_hours_pass(broker: Broker, mq: Client) -> None:
    """A lease is renewed by a handler that runs, however much time passes: no other consumer gets the message."""
    given, finish = [], asyncio.Event()

    async def handler(message: object) -> None:
        given.append(message)
        await finish.wait()

    async with mq.pop_consumer("group", "orders") as consumer, Background("test") as background:
        background.spawn("run", consumer.run(handler, concurrency=2))
        await broker.send("orders", b"one")
        await broker.clock.advance("10m")
        finish.set()
        await broker.clock.advance("1m")
    assert len(given) == 1


async def test_everything_can_go_wrong_and_be_well_again(broker: Broker, mq: Client) -> None:
    """Full and slow disks, slow and cut networks, frozen and killed roles: sends wait or fail, then succeed again."""
    async with mq.producer("orders") as producer:
        faults: list[Callable[[], ActiveFault]] = [
            lambda: broker.slow_disk(50),
            lambda: broker.slow_network(50),
            lambda: broker.freeze("snode"),
            lambda: broker.isolate("enode"),
        ]
        for fault in faults:
            with fault():
                sending = asyncio.ensure_future(producer.send(b"x"))  # noqa: TID251
                await broker.clock.advance("2s")
            await sending
        broker.kill("enode")
        sending = asyncio.ensure_future(producer.send(b"x"))  # noqa: TID251
        await broker.start("enode")
        await sending
        await broker.restart("snode")
        await producer.send(b"x")
        with broker.full_disk(), pytest.raises(OrtooError):
            await broker.send("orders", b"x" * 100_000)
        await broker.clock.advance("10s")
        await producer.send(b"x")
    assert len(await broker.messages("orders")) == 7


async def test_lost_acknowledgements_leave_one_copy(broker: Broker, mq: Client) -> None:
    """The answer is lost three times and the enode dies: the producer sends again, the message is there once."""
    async with mq.producer("orders") as producer:
        with broker.lose_acknowledgements(3, kill="enode", back_after="2s") as answers:
            await producer.send(b"one")
    assert answers.lost == 3
    assert len(await broker.messages("orders")) == 1


@pytest.mark.ortoo(seed=5, enode={"dedup_window_ms": 1_000}, snode={"auto_create_topics": True})
async def test_marks_choose_seed_and_settings(broker: Broker) -> None:
    """Marks of module and test add up, and settings reach the roles."""
    assert broker.seed == 5
    await broker.send("made_by_this_send", b"x")
    assert len(await broker.messages("made_by_this_send")) == 1
    assert await broker.messages("orders") == []


async def test_wrong_words_are_refused_by_name(broker: Broker) -> None:
    """A role that is none, a duration that is none, a port in an asynchronous test."""
    with pytest.raises(ValueError, match="'proxy' is not a role of the broker; expected one of namesrv, enode, snode"):
        broker.kill("proxy")
    with pytest.raises(ValueError, match='"1h30m"'):
        await broker.clock.advance("soon")
    with pytest.raises(ValueError, match="backwards"):
        await broker.clock.advance(-1)
    with pytest.raises(RuntimeError, match="blocking_broker"):
        broker.port()
