"""The producer's guarantees: it waits at its limits, survives breaks, and queries routes again."""

import asyncio
from collections.abc import Awaitable
from typing import Any
from unittest import mock

import pytest

from ortoo.client import ClientClosed, Conflict, Invalid, Message, Overloaded, Queue, Unavailable, Unsupported, connect
from ortoo.client.produce.routes import Route
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.retry import Backoff
from ortoo.common.records import compression
from ortoo.common.records.compression import Codec
from tests.unit.client.simulated_store import REFUSALS, TOPIC_ID, Fault, SimulatedStore, producer_to

BODY = b"x" * 1000


async def test_send_many_waits_while_too_much_is_under_way() -> None:
    """Without answers it stops near its limit, and `enqueue_nowait` raises Overloaded. With answers it continues."""
    store = SimulatedStore()
    store.is_away.set()
    taken = 0

    def messages() -> Any:
        nonlocal taken
        for _ in range(40_000):
            taken += 1
            yield BODY

    async with asyncio.timeout(60), producer_to(store, memory_bytes_max=4 << 20) as producer:
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(producer.send_many(messages()))
            while not sending.done() and producer._unacknowledged_bytes <= 4 << 20:
                await SystemClock().sleep(0)
            at_limit = taken
            for _ in range(50):
                await SystemClock().sleep(0)
            assert taken == at_limit
            assert at_limit * len(BODY) < 8 << 20
            with pytest.raises(Overloaded, match="enqueue"):
                producer.enqueue_nowait(BODY)
            store.is_away.clear()
            call: Any = producer._call  # a SimulatedCall
            call._wake.set()
        receipts = await sending.result()
    assert len(receipts) == 40_000
    assert sum(map(len, store.queues.values())) == 40_000


async def test_a_lost_answer_is_resolved_by_the_same_batch_again() -> None:
    """G4: the receipt of the second attempt has the position of the first."""
    store = SimulatedStore([Fault.ANSWER_LOST, Fault.LOST])
    async with asyncio.timeout(60), producer_to(store, queue_count=1) as producer:
        first = await producer.send(b"one")
        second = await producer.send(b"two")
    assert (first.offset, second.offset, store.sends) == (0, 1, 4)
    assert list(store.queues.values()) == [[b"one", b"two"]]


async def test_a_refusal_after_a_lost_answer_stops_nothing_that_comes_later() -> None:
    """A batch that may be stored is not reported as refused (G11), and its number is not used for the next one."""
    store = SimulatedStore([Fault.ANSWER_LOST, Fault.REFUSED])
    with mock.patch.dict(REFUSALS, {Fault.REFUSED: Invalid("the topic is read-only for a moment")}):
        async with asyncio.timeout(60), producer_to(store, queue_count=1) as producer:
            with pytest.raises(Unavailable, match="read-only"):
                await producer.send(b"one")
            later = [await producer.send(body) for body in (b"two", b"three")]
    assert [receipt.offset for receipt in later] == [1, 2]
    assert list(store.queues.values()) == [[b"one", b"two", b"three"]]


async def test_what_cannot_leave_yet_leaves_together() -> None:
    """Behind five batches in flight the others are merged into one, up to a limit, without loss and in order."""
    store = SimulatedStore()
    store.is_away.set()
    bodies = [b"%d" % number for number in range(400)]
    async with asyncio.timeout(60), producer_to(store, queue_count=1) as producer, asyncio.TaskGroup() as group:
        for body in bodies:
            group.create_task(producer.send(Message(body, message_group="orders")))
            for _ in range(5):
                await SystemClock().sleep(0)  # lets each message get a separate batch
        for _ in range(3):
            producer.enqueue_nowait(Message(b"x" * 40_000, message_group="orders"))
        store.is_away.clear()
        call: Any = producer._call  # a SimulatedCall
        call._wake.set()
    [stored] = store.queues.values()
    assert stored[:400] == bodies
    assert len(stored) == 403
    assert store.sends == 7  # five single ones, then one above 64 KiB, and the last message


async def test_what_could_not_leave_ends_in_time() -> None:
    """A batch that waits behind others expires with them, as never sent."""
    store = SimulatedStore()
    store.is_away.set()
    async with asyncio.timeout(60), producer_to(store, queue_count=1, delivery_timeout_ms=100.0) as producer:
        sendings = []
        for number in range(8):
            sendings.append(producer.enqueue_nowait(Message(b"%d" % number, message_group="orders")))
            for _ in range(5):
                await SystemClock().sleep(0)
        with pytest.raises(Unavailable, match="never sent"):
            await sendings[-1]
        for sending in sendings[:-1]:
            with pytest.raises(Unavailable):
                await sending


async def test_what_waited_behind_batches_that_were_given_up_leaves_then() -> None:
    """Answers to expired batches are ignored, so they must not be waited for."""
    store = SimulatedStore()
    store.is_away.set()
    async with asyncio.timeout(60), producer_to(store, queue_count=1) as producer:
        sendings = []
        for _ in range(8):
            sendings.append(producer.enqueue_nowait(Message(BODY, message_group="orders")))
            for batcher in producer._batchers.values():
                producer._seal(batcher)
            await SystemClock().sleep(0)
        for sending in sendings[:5]:
            sending._batch.deadline_s = 0.0
        await producer._expire_batches()
        store.is_away.clear()
        call: Any = producer._call  # a SimulatedCall
        call._wake.set()
        await sendings[-1]
        for sending in sendings[:5]:
            with pytest.raises(Unavailable):
                await sending


async def test_a_message_that_fits_into_no_batch_that_was_begun_gets_one_of_its_own() -> None:
    """The open batch of the next queue may be of another kind, too."""
    store = SimulatedStore()
    async with asyncio.timeout(60), producer_to(store, queue_count=2) as producer:
        for number in range(20):  # both queues hold messages without a priority
            producer.enqueue_nowait(Message(b"%d" % number, message_group=f"group-{number}"))
        sending = producer.enqueue_nowait(Message(b"another sort", priority=3))
        receipt = await sending
        await producer.flush()
    assert store.queues[receipt.queue][receipt.offset] == b"another sort"
    assert sum(map(len, store.queues.values())) == 21


async def test_bodies_and_messages_share_a_batch_and_each_is_refused_alone() -> None:
    """An empty or too large body or message fails alone; the others keep their positions."""
    good: list[Message | bytes] = [b"a", Message(b"b", "tag", ("k",)), b"c", Message(b"d", message_id="mine"), b"e"]
    bad: list[Message | bytes] = [b"", Message(b""), Message(b"x", "two\nlines"), b"", Message(b"x", keys=("",))]
    store = SimulatedStore()
    async with asyncio.timeout(60), producer_to(store) as producer:
        sendings = [producer.enqueue_nowait(one) for pair in zip(good, bad, strict=True) for one in pair]
        too_large, after = producer.enqueue_nowait(bytes((4 << 20) + 1)), producer.enqueue_nowait(b"f")
        receipts = [await sending for sending in (*sendings[::2], after)]
        for sending in (*sendings[1::2], too_large):
            with pytest.raises(Invalid):
                await sending
    stored = [store.queues[receipt.queue][receipt.offset] for receipt in receipts]
    assert stored == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert len({receipt.queue for receipt in receipts[:5]}) == 1
    assert receipts[3].message_id == "mine"


async def test_messages_that_cannot_be_compressed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library of the codec, each send has its error instead of no outcome."""
    monkeypatch.setitem(compression._LIBRARIES, Codec.ZSTD, ("no_such_library_here", "zstd"))
    async with asyncio.timeout(10), producer_to(SimulatedStore(), codec=Codec.ZSTD) as producer:
        sendings = [producer.enqueue_nowait(body) for body in (b"a", b"", b"c")]
        for sending, error in zip(sendings, (Unsupported, Invalid, Unsupported), strict=True):
            with pytest.raises(error):
                await sending
        await producer.enqueue(b"d")
        with pytest.raises(Unsupported):
            await producer.flush()


async def test_a_bare_body_goes_to_the_queue_of_the_least_priority() -> None:
    """Where each queue has one priority, it is a message without one, independent of other queues' batches."""
    queues = tuple(Queue("t", "enode-0", number) for number in range(3))
    route = Route(TOPIC_ID, queues, queues, has_priority_levels=True)
    async with asyncio.timeout(60), producer_to(SimulatedStore(), route=route) as producer:
        sendings = []
        for number in range(30):
            sendings.append(producer.enqueue_nowait(b"bare"))
            sendings.append(producer.enqueue_nowait(Message(b"urgent", priority=1 + number % 2)))
            if not number % 7:
                await SystemClock().sleep(0)
        receipts = [await sending for sending in sendings]
    assert {receipt.queue for receipt in receipts[::2]} == {queues[0]}
    assert {receipt.queue for receipt in receipts[1::2]} == {queues[1], queues[2]}


async def test_whoever_waits_when_a_producer_is_left_by_an_error_is_told() -> None:
    """No memory is released and no outcome arrives after that."""
    store = SimulatedStore()
    store.is_away.set()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        with pytest.raises(ZeroDivisionError):
            async with producer_to(store, memory_bytes_max=1) as producer:
                producer.enqueue_nowait(BODY)
                await SystemClock().sleep(0)
                sending, flushing = (
                    group.create_task(told(producer.enqueue(BODY))),
                    group.create_task(told(producer.flush())),
                )
                for _ in range(5):
                    await SystemClock().sleep(0)
                raise ZeroDivisionError
        assert isinstance(await sending, ClientClosed)
        assert isinstance(await flushing, Unavailable)


async def told(call: Awaitable[Any]) -> Exception | None:
    """The error of a call."""
    try:
        await call
    except Exception as error:
        return error
    return None


async def test_an_enode_that_stops_holds_up_nothing() -> None:
    """A batch that it has not stored moves to another queue; a message of a message group waits for its queue."""
    store = SimulatedStore([Fault.NOT_TAKEN])
    async with asyncio.timeout(60), producer_to(store) as producer:
        producer._connection.backoff = Backoff(first_s=3600.0, max_s=3600.0)
        refused = producer._sticky.queue
        receipts = [await producer.send(b"%d" % number) for number in range(4)]
    assert refused not in {receipt.queue for receipt in receipts}
    store = SimulatedStore([Fault.NOT_TAKEN])
    async with asyncio.timeout(60), producer_to(store) as producer:
        queue = producer._route.queue_of_group("orders")
        assert (await producer.send(Message(b"0", message_group="orders"))).queue == queue


async def test_an_unanswered_message_ends_with_an_unknown_outcome() -> None:
    """After its timeout it fails with Unavailable, and the producer continues with a new identity."""
    store = SimulatedStore()
    store.is_away.set()
    async with asyncio.timeout(60), producer_to(store, queue_count=1, delivery_timeout_ms=0.0) as producer:
        producer.enqueue_nowait(b"unwatched")
        with pytest.raises(Unavailable, match="outcome is unknown"):
            await producer.flush()


async def test_a_failure_is_told_once() -> None:
    """A failure that `send` raised is not raised again at the end of the block; an unawaited one is, once."""
    store = SimulatedStore()
    store.is_away.set()
    async with asyncio.timeout(60), producer_to(store, queue_count=1, delivery_timeout_ms=0.0) as producer:
        with pytest.raises(Unavailable):
            await producer.send(b"lost")
        with pytest.raises(Invalid):
            await producer.send(b"")
        await producer.flush()
        producer.enqueue_nowait(b"unwatched")
        with pytest.raises(Unavailable):
            await producer.flush()
        await producer.flush()


@pytest.mark.parametrize("given", ["text", 7, None])
async def test_what_is_no_message_is_refused_with_what_to_do(given: Any) -> None:
    """By every method of sending, and the producer continues."""
    async with asyncio.timeout(60), producer_to(SimulatedStore()) as producer:
        for send in (producer.send, producer.enqueue, lambda it: producer.send_many([b"before", it])):
            with pytest.raises(Invalid, match="expected bytes or a Message"):
                await send(given)
        with pytest.raises(Invalid, match="expected bytes or a Message"):
            producer.enqueue_nowait(given)
        with pytest.raises(Invalid, match=r"\.encode\(\)"):
            await producer.send("text")  # type: ignore[arg-type]
        assert (await producer.send(b"good")).offset >= 0


@pytest.mark.parametrize("waits", ["enqueue", "wait_for_room"])
async def test_whoever_waits_for_room_is_never_refused(waits: str) -> None:
    """`enqueue` takes any number of messages and hardly exceeds the limit; so does `enqueue_nowait` after a wait."""
    largest, sendings = 0, []
    async with asyncio.timeout(60), producer_to(SimulatedStore(), memory_bytes_max=100_000) as producer:
        for _ in range(2_000):
            if waits == "wait_for_room":
                await producer.wait_for_room()
            sendings.append(producer.enqueue_nowait(BODY) if waits == "wait_for_room" else await producer.enqueue(BODY))
            largest = max(largest, producer._unacknowledged_bytes)
        assert len({(one.queue, one.offset) for one in [await sending for sending in sendings]}) == 2_000
    assert 100_000 < largest < 100_000 + (2 << 20)


async def test_a_send_soon_that_is_called_off_has_taken_nothing() -> None:
    """It waits for memory in vain; messages taken before it are stored after an answer."""
    store = SimulatedStore()
    store.is_away.set()
    async with asyncio.timeout(60), producer_to(store, memory_bytes_max=100_000) as producer:
        taken = await producer.send_many([BODY] * 101)
        while producer._unacknowledged_bytes <= 100_000:
            await SystemClock().sleep(0)
        waiting = asyncio.ensure_future(producer.enqueue(b"too much"))  # noqa: TID251  # awaited below
        for _ in range(50):
            await SystemClock().sleep(0)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        store.is_away.clear()
        call: Any = producer._call  # a SimulatedCall
        call._wake.set()
        assert len(await taken) == 101
    assert [body for bodies in store.queues.values() for body in bodies] == [BODY] * 101


async def test_a_message_behind_others_is_checked_like_the_first() -> None:
    """The fast path of an open batch refuses another thread, a forked child and the end of the client."""
    store = SimulatedStore()
    async with asyncio.timeout(60), producer_to(store, queue_count=1) as producer:
        connection = producer._connection
        with mock.patch.object(connection, "loop", asyncio.get_running_loop()):
            sendings = [producer.enqueue_nowait(b"one"), await producer.enqueue(Message(b"two"))]
            assert producer._filling is not None, "the fast path is in use"
            with pytest.raises(Conflict, match="another event loop"):
                await asyncio.to_thread(producer.enqueue_nowait, b"elsewhere")
            with mock.patch.object(connection, "forks", -1), pytest.raises(Conflict, match="forked"):
                await producer.enqueue(b"in a child")
            with mock.patch.multiple(connection, loop=None, _is_closed=True), pytest.raises(ClientClosed):
                await producer.enqueue(b"late")
            sendings += [await producer.enqueue(b"three"), producer.enqueue_nowait(bytearray(b"four"))]  # type: ignore[arg-type]
            assert [receipt.offset for receipt in [await one for one in sendings]] == [0, 1, 2, 3]
            assert producer._filling is None, "a sealed batch takes nothing"
            assert producer._sticky.builder.batch is None, "and is not kept in memory"
    assert list(store.queues.values()) == [[b"one", b"two", b"three", b"four"]]


async def test_enqueue_waits_at_the_limit_behind_an_open_batch() -> None:
    """Also while another call waits, so that nothing else makes this one yield."""
    store = SimulatedStore()
    store.is_away.set()
    async with asyncio.timeout(60), producer_to(store, linger_ms=60_000.0, memory_bytes_max=64 << 10) as producer:
        for _ in range(2):
            producer.enqueue_nowait(BODY)  # two batches in flight, so that the next one lingers
            await SystemClock().sleep(0)
        while producer._unacknowledged_bytes <= 64 << 10:
            await producer.enqueue(BODY)
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(producer.enqueue(BODY)) for _ in range(2)]
            for _ in range(10):
                await SystemClock().sleep(0)
            assert not any(one.done() for one in waiting)
            store.is_away.clear()
            call: Any = producer._call  # a SimulatedCall
            call._wake.set()


async def test_a_closed_producer_takes_nothing() -> None:
    """Every method of sending raises an error with the remedy."""
    async with producer_to(SimulatedStore()) as producer:
        pass
    with pytest.raises(ClientClosed, match="make a new one"):
        producer.enqueue_nowait(b"late")
    with pytest.raises(ClientClosed, match="make a new one"):
        await producer.enqueue(b"late")
    with pytest.raises(ClientClosed, match="make a new one"):
        await producer.send_once(b"late", "once")


async def test_a_producer_that_was_not_entered_takes_nothing() -> None:
    """Every method of sending names the missing `async with`, and sends nothing."""
    async with connect("localhost:1") as mq:
        producer = mq.producer("t")
        with pytest.raises(ClientClosed, match="async with"):
            producer.enqueue_nowait(b"early")
        sends: list[Awaitable[Any]] = [
            producer.send(b"early"),
            producer.send_many([b"early"]),
            producer.send_once(b"early", "once"),
            producer.request(b"early"),
        ]
        for send in sends:
            with pytest.raises(ClientClosed, match="async with"):
                await send


async def test_the_end_of_a_producer_has_a_limit_and_names_what_has_no_answer() -> None:
    """While no server answers, it does not wait until the messages expire."""
    store = SimulatedStore()
    store.is_away.set()
    words = r"3 messages had an answer, for Queue\(topic='t', enode='enode-0', queue_id=\d\); their outcome is unknown"
    async with asyncio.timeout(60):
        with pytest.raises(Unavailable, match=words):
            async with producer_to(store, close_timeout_ms=20.0, queue_count=1) as producer:
                taken = [producer.enqueue_nowait(b"lost") for _ in range(3)]
        with pytest.raises(Unavailable, match="closed before the answer"):
            await taken[0]


async def test_a_route_that_is_doubted_is_asked_for_again() -> None:
    """Messages without a group avoid an enode that is down; those of a group wait for their queue."""
    gone, there = Queue("t", "enode-0", 0), Queue("t", "enode-1", 0)
    store = SimulatedStore([Fault.AWAY, Fault.AWAY, Fault.AWAY])
    route = Route(TOPIC_ID, (gone,), (gone, there))
    async with asyncio.timeout(60), producer_to(store, route=route) as producer:
        fresh = Route(TOPIC_ID, (there,), (gone, there))

        async def query_placement(*_: object) -> Route:
            return fresh

        with mock.patch("ortoo.client.produce.routes.query_placement", query_placement):
            await producer.send(b"one")
            for _ in range(10):
                await SystemClock().sleep(0)
            receipt = await producer.send(b"two")
        assert receipt.queue == there
        groups = {(await producer.send(Message(b"x", message_group=f"{n}"))).queue for n in range(20)}
        assert groups == {gone, there}


async def test_addresses_are_checked_before_anything_is_sent() -> None:
    """A missing address, a name without a port and an invalid port are reported."""
    for wrong in ([], ["nowhere"], ["host:port"], ["host:99999"], ["host:0"], ["host:８０８１"], [":8081"]):
        with pytest.raises(Invalid):
            async with connect(wrong):
                pass


def test_a_priority_has_a_queue_when_its_enode_has_left_the_topic() -> None:
    """A batch may be open for an enode that is missing in the new route."""
    queues = tuple(Queue("t", "enode-1", number) for number in range(3))
    route = Route(7, queues, queues, has_priority_levels=True)
    assert route.queue_of_priority(1, "enode-0") == route.queue_of_priority(1, "enode-1") == queues[1]
