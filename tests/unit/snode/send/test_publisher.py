"""The choice of queues for single messages, and refused messages."""

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.directory.topic import Permission, Placement
from ortoo.common.errors import NOT_ACCEPTED_FIELD, Invalid, OrtooError, Overloaded, Unavailable
from ortoo.common.groups.queue_choice import queue_of_group
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.message import Message
from ortoo.common.records.message_id import message_id_text
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.telemetry.metrics import Metrics
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.routes import DirectoryUpdate, EnodeEntry, Queue, Topic
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.stream_ages import StreamAges
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.snode.enodes.link import AppendedBatch, EnodeLinks, MessagePlace
from ortoo.snode.send.publisher import Publisher, PublishReceipt
from ortoo.snode.settings import SnodeSettings
from ortoo.snode.topics.creation import ProducerTopics
from tests.conformance.wire import until
from tests.unit.snode.fake_enode import TOPIC, FakeEnode

QUEUES = TOPIC.write_queues()


class KnownTopics:
    """A watch with one topic."""

    async def topic(self, name: str) -> Topic:
        """That topic."""
        return TOPIC


def publisher_to(
    enode: FakeEnode, background: Background, *, timeout_s: float = 3.0, links: EnodeLinks | None = None
) -> Publisher:
    """A publisher over one enode."""
    settings: Any = SnodeSettings(enode_timeout_ms=int(timeout_s * 1000))
    ages = StreamAges(0, SystemClock(), Randomness(1))
    shared: Any = (None, Metrics(), SystemClock(), Randomness(1), MemoryBudget(1 << 30), ages)
    runtime = Runtime(settings, "i", background, *shared)
    topics = cast(ProducerTopics, KnownTopics())
    memory = runtime.memory.share("test")
    return Publisher(runtime, enode.directory(), topics, links or enode.links(), memory)


@given(st.text(min_size=1, max_size=20))
def test_a_message_group_has_one_queue(group: str) -> None:
    """The choice depends only on the group and the queues."""
    assert queue_of_group(group, QUEUES) == queue_of_group(group, list(QUEUES))


def test_known_groups_keep_their_queues() -> None:
    """The hash is part of the contract: these values never change."""
    assert [queue_of_group(group, QUEUES).queue_id for group in ("a", "b", "order-17", "örtöö")] == [0, 0, 1, 0]


async def test_idle_time_spreads_single_messages_over_all_queues() -> None:
    """One message after another visits the queues in turn."""
    enode = FakeEnode()
    async with Background("test") as background:
        publisher = publisher_to(enode, background)
        placed = [(await publisher.publish("t", [Message(b"x")], None))[0].queue.queue_id for _ in range(8)]
    assert sorted(placed) == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_a_request_whose_batch_would_be_too_large_is_refused_before_it_is_sent() -> None:
    """A message with rare fields enlarges the plain messages of its request. The error gives the size and the limit."""
    enode, large = FakeEnode(), Message(b"x", "t", ("k",), properties={"p": "v"}, message_id="m", expire_at_ms=9)
    async with Background("test") as background:
        publisher = publisher_to(enode, background)
        assert len(await publisher.publish("t", [Message(b"x" * 228)] * 4_000, None)) == 4_000
        with pytest.raises(Invalid, match=r"4001 messages with up to \d+ bytes in all; send at most 1048576"):
            await publisher.publish("t", [*[Message(b"x" * 228)] * 4_000, large], None)
    assert [batch.count for batch in enode.seen] == [4_000]


async def test_messages_of_one_moment_share_batches() -> None:
    """Single messages that come in one iteration of the event loop are one append, and get consecutive offsets."""
    enode = FakeEnode()
    found: list[PublishReceipt | Exception] = []
    async with asyncio.timeout(60), Background("test") as background:
        publisher = publisher_to(enode, background)
        for _ in range(20):
            publisher.store_one(TOPIC, Message(b"x"), found.append)
        await until(lambda: len(found) == 20)
    assert len(enode.seen) == 1
    assert [one.offset for one in found if isinstance(one, PublishReceipt)] == list(range(20))


async def test_a_message_that_joins_a_batch_needs_no_further_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most messages of many clients join a batch. Each would pay for the same decision again."""
    enode, chosen = FakeEnode(), list[int]()
    found: list[PublishReceipt | Exception] = []
    available_queues = DirectoryCache.available_queues

    def count(directory: DirectoryCache, queues: Sequence[Queue]) -> Sequence[Queue]:
        chosen.append(len(queues))
        return available_queues(directory, queues)

    monkeypatch.setattr(DirectoryCache, "available_queues", count)
    async with asyncio.timeout(60), Background("test") as background:
        publisher = publisher_to(enode, background)
        for _ in range(20):
            publisher.store_one(TOPIC, Message(b"x"), found.append)
        await until(lambda: len(found) == 20)
    assert len(chosen) == 1


async def test_a_topic_that_takes_no_messages_refuses_those_that_would_join_a_batch() -> None:
    """A change of the topic counts at once, also while an append is in flight."""
    found: list[PublishReceipt | Exception] = []
    async with asyncio.timeout(60), Background("test") as background:
        publisher = publisher_to(FakeEnode(), background)
        publisher.store_one(TOPIC, Message(b"x"), found.append)
        closed = dataclasses.replace(TOPIC, permission=Permission.READ_ONLY)
        with pytest.raises(Invalid, match="accepts no messages"):
            publisher.store_one(closed, Message(b"x"), found.append)
        await until(lambda: bool(found))
    assert isinstance(found[0], PublishReceipt)


@pytest.mark.parametrize(
    "change", [{"alive": False}, {"write_refusal": "its disk is full"}, {"other_directory_id": "x"}]
)
async def test_no_message_joins_a_batch_of_an_enode_that_became_unavailable(change: dict[str, Any]) -> None:
    """An append that is in flight there may take until its timeout."""
    enodes = {"e": FakeEnode(), "f": FakeEnode()}
    topic = dataclasses.replace(TOPIC, placements=(Placement("e", 1, 1), Placement("f", 1, 1)))
    entries = [EnodeEntry(name, f"{name}:1", "s", alive=True) for name in enodes]
    directory = DirectoryCache()
    directory.apply(DirectoryUpdate(1, True, (topic,), enodes=tuple(entries)))
    links = EnodeLinks(directory, lambda name, address, epoch: enodes[name])
    for enode in enodes.values():
        enode.gate.clear()
    found: list[PublishReceipt | Exception] = []
    async with asyncio.timeout(60), Background("test") as background:
        publisher = publisher_to(enodes["e"], background, links=links)
        publisher.directory = directory
        publisher.store_one(topic, Message(b"x"), found.append)
        await until(lambda: any(enode.seen for enode in enodes.values()))
        [stuck], [other] = ([one for one in entries if bool(enodes[one.name].seen) is seen] for seen in (True, False))
        directory.apply(DirectoryUpdate(2, False, enodes=(dataclasses.replace(stuck, **change),)))
        publisher.store_one(topic, Message(b"y"), found.append)
        enodes[other.name].gate.set()
        await until(lambda: bool(found))
        assert [one.queue.enode for one in found if isinstance(one, PublishReceipt)] == [other.name]


async def test_one_message_goes_to_another_enode_if_the_first_takes_none() -> None:
    """Each enode is tried once; an error of the last one is passed on."""
    enodes = {"e": FakeEnode(), "f": FakeEnode()}
    topic = dataclasses.replace(TOPIC, placements=(Placement("e", 1, 1), Placement("f", 1, 1)))
    entries = tuple(EnodeEntry(name, f"{name}:1", "s", alive=True) for name in enodes)
    directory = DirectoryCache()
    directory.apply(DirectoryUpdate(1, True, (topic,), enodes=entries))

    def link_to(enode: str, address: str, epoch: int = 0) -> GrpcEnodeLink:
        return enodes[enode]

    links = EnodeLinks(directory, link_to)
    refusal = Overloaded("its disk is full", field=NOT_ACCEPTED_FIELD)
    found: list[PublishReceipt | Exception] = []
    async with asyncio.timeout(60), Background("test") as background:
        publisher = publisher_to(enodes["e"], background, links=links)
        publisher.directory = directory
        for full in enodes:
            enodes[full].refusals.append(refusal)
            for _ in enodes:  # the queues are used in turn
                found.clear()
                publisher.store_one(topic, Message(b"x"), found.append)
                await until(lambda: bool(found))
                [receipt] = found
                assert isinstance(receipt, PublishReceipt)
            assert not enodes[full].refusals
        for enode in enodes.values():
            enode.refusals.append(refusal)
        found.clear()
        publisher.store_one(topic, Message(b"x"), found.append)
        await until(lambda: bool(found))
    assert found == [refusal]


async def test_one_message_of_each_kind_goes_where_a_call_would_send_it() -> None:
    """A message group has its queue, and a delayed message a recall handle."""
    enode = FakeEnode()
    found: list[Any] = []
    messages = [Message(b"x", message_group="a"), Message(b"y", deliver_at_ms=1 << 42)]
    async with asyncio.timeout(60), Background("test") as background:
        publisher = publisher_to(enode, background)
        for message in messages:
            publisher.store_one(TOPIC, message, found.append)
        await until(lambda: len(found) == 2)
    keyed, delayed = sorted(found, key=lambda one: bool(one.recall_handle))
    assert keyed.queue == queue_of_group("a", QUEUES)
    assert delayed.recall_handle


async def test_messages_of_one_call_stay_together_and_get_their_ids() -> None:
    """Messages without a group go to one queue in order; ids are the producer's or made of the location."""
    async with Background("test") as background:
        publisher = publisher_to(FakeEnode(), background)
        receipts = await publisher.publish("t", [Message(b"x"), Message(b"y", message_id="mine")], None)
    queue = receipts[0].queue
    assert [(r.queue, r.offset) for r in receipts] == [(queue, 0), (queue, 1)]
    assert [r.message_id for r in receipts] == [message_id_text(77, "e", queue.queue_id, 0), "mine"]


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "messages"),
        ([Message(b"x"), Message(b"")], "messages[1].body"),
        ([Message(b"x", "a|b")], "messages[0].tag"),
        ([Message(b"x" * 600_000)] * 2, "messages"),
    ],
)
async def test_a_bad_message_refuses_the_call_and_names_the_field(messages: list[Message], field: str) -> None:
    """Nothing of the call is stored (G11)."""
    enode = FakeEnode()
    async with Background("test") as background:
        with pytest.raises(Invalid) as refused:
            await publisher_to(enode, background).publish("t", messages, None)
    assert refused.value.field == field
    assert not enode.seen


async def test_a_named_queue_must_take_messages() -> None:
    """A queue of another topic, or out of range, is refused; an unknown enode too."""
    async with Background("test") as background:
        publisher = publisher_to(FakeEnode(), background)
        for queue in (Queue("u", "e", 0), Queue("t", "e", 4), Queue("t", "e9", 0)):
            with pytest.raises((Invalid, Unavailable)):
                await publisher.publish("t", [Message(b"x")], queue)


@pytest.mark.parametrize("error", [Unavailable("frozen"), Invalid("ten years ahead", field="deliver_at_ms")])
async def test_a_message_with_an_id_that_cannot_be_stored_fails_its_sender_alone(error: OrtooError) -> None:
    """The error is the answer of that call, and the process's own tasks continue."""

    class Refusing(FakeEnode):
        async def append_deduplicated(self, *_: object) -> list[MessagePlace]:
            raise error

    async with Background("test") as background:
        own_loop = background.spawn("own loop", asyncio.Event().wait())
        publisher = publisher_to(Refusing(), background)
        message = Message(b"x", properties={"DEDUP_ID": "chosen"})
        with pytest.raises(type(error)):
            await publisher.publish("t", [message], None)
        assert not own_loop.done()


async def test_after_a_doubtful_try_nobody_says_that_nothing_was_taken() -> None:
    """An enode that was unreachable at the last try may have stored a message with an id at the first."""

    class Dying(FakeEnode):
        tries = 0

        async def append_deduplicated(self, *_: object) -> list[MessagePlace]:
            self.tries += 1
            field = NOT_ACCEPTED_FIELD if self.tries > 1 else ""
            raise Unavailable("it is away", field=field)

    enode = Dying()
    async with Background("test") as background:
        publisher = publisher_to(enode, background, timeout_s=3.0)
        with pytest.raises(Unavailable) as told:
            await publisher.publish("t", [Message(b"x", properties={"DEDUP_ID": "chosen"})], None)
    assert enode.tries > 1
    assert told.value.field != NOT_ACCEPTED_FIELD


IN_TWO_QUEUES = [Message(b"x", message_group=group) for group in ("a", "order-17")]


@pytest.mark.parametrize(
    "refusal",
    [
        Unavailable("it is away", field=NOT_ACCEPTED_FIELD),
        Overloaded("its disk is full", field=NOT_ACCEPTED_FIELD),
        Invalid("ten years ahead", field="batch.records.deliver_at_ms"),
    ],
)
async def test_of_a_call_that_is_stored_in_part_nobody_says_that_nothing_was(refusal: OrtooError) -> None:
    """G11: a refusal means that nothing is stored, but one of two queues has its message."""

    class Refusing(FakeEnode):
        async def _append(self, queue_id: int, batch: SealedBatch) -> AppendedBatch:
            if queue_id == 1:
                raise refusal
            return await super()._append(queue_id, batch)

    enode = Refusing()
    async with Background("test") as background:
        publisher = publisher_to(enode, background, timeout_s=0.1)
        with pytest.raises(OrtooError) as told:
            await publisher.publish("t", IN_TWO_QUEUES, None)
    assert enode.end(0) == 1
    assert (type(told.value), told.value.field) == (Unavailable, "")


async def test_who_is_refused_at_once_hears_that_another_part_was_on_its_way() -> None:
    """The enode of the second message is known to be unreachable after the first one was sent."""

    class Leaving(EnodeLinks):
        asked = 0

        def to(self, enode: str) -> GrpcEnodeLink:
            self.asked += 1
            if self.asked == 2:
                raise Unavailable("its lease ran out", field=NOT_ACCEPTED_FIELD)
            return super().to(enode)

    enode = FakeEnode()
    async with Background("test") as background:
        publisher = publisher_to(enode, background, links=Leaving(enode.directory(), enode.to))
        with pytest.raises(Unavailable) as told:
            await publisher.publish("t", IN_TWO_QUEUES, None)
    assert enode.end(0) == 1
    assert told.value.field == ""


async def test_a_queue_for_which_there_is_no_room_is_passed_over_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the maximum of served queues, the turn passes from an unserved queue to the served ones."""
    monkeypatch.setattr("ortoo.snode.send.publisher.BATCHERS_MAX", 1)
    enode = FakeEnode()
    enode.gate.clear()
    async with asyncio.timeout(60), Background("test") as background:
        publisher = publisher_to(enode, background)
        one = background.start_future("1", publisher.publish("t", [Message(b"1")], None))
        await enode.arrived.wait()
        [served] = publisher._batchers.values()
        served.batches_taken += 1  # nothing more can join: the turn changes
        for _ in range(len(QUEUES) - 1):
            with pytest.raises(Unavailable):
                await publisher.publish("t", [Message(b"lost")], None)
        other = background.start_future("2", publisher.publish("t", [Message(b"2")], None))
        enode.gate.set()
        assert [(await it)[0].queue for it in (one, other)] == [(await one)[0].queue] * 2
