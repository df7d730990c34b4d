"""ReceiveMessage calls without messages, on both transports: how each of them ends.

On h2 they wait without a task; on grpc each of them is an ordinary call.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.definition_pb2 import Code
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import connect
from ortoo.common.errors import Conflict
from ortoo.common.grpc.layers.call_memory import CALL_BYTES, CallMemory
from ortoo.common.process.background import Background
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.telemetry.call_metrics import CallMetrics
from ortoo.snode.pop.attempts import RecentAttempts
from ortoo.snode.pop.watches import PopWatch, PopWatches
from ortoo.snode.rocketmq.receive.idle_polls import IdlePoll, IdlePolls
from ortoo.snode.rocketmq.receive.receive_message import ReceiveMessageActivity
from ortoo.snode.topics.group_settings import DeliveryModes
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.integration.deaf_client import deaf_client
from tests.integration.guarded_cluster import RULES, as_user, guarded, signed

PATH = "/apache.rocketmq.v2.MessagingService/ReceiveMessage"
LONG_S = 20
"""The waiting time of a poll that ends otherwise."""
WINDOW_BYTES = 65_535
"""The window of a client that reads its answers."""
IDLE = (("x-mq-client-id", "idle"), ("x-mq-language", "JAVA"))
OTHER = (("x-mq-client-id", "other"), ("x-mq-language", "JAVA"))
ONLY_H2 = pytest.mark.parametrize("each_transport", ["h2"], indirect=True)
"""On grpc each poll is a call."""
Metadata = tuple[tuple[str, str], ...]


def request(wait_s: float = LONG_S, **more: Any) -> s.ReceiveMessageRequest:
    """A poll of a push consumer."""
    namespace = more.pop("namespace", "")
    return s.ReceiveMessageRequest(
        group=d.Resource(name="g", resource_namespace=namespace),
        message_queue=d.MessageQueue(topic=d.Resource(name="t", resource_namespace=namespace), id=-1),
        batch_size=32,
        auto_renew=True,
        long_polling_timeout=Duration(seconds=int(wait_s), nanos=int(wait_s % 1 * 1e9)),
        **more,
    )


@dataclass
class Polls:
    """A cluster, and the polls of its snode."""

    cluster: InProcessCluster
    stub: Any
    is_h2: bool
    watches: list[PopWatch]
    """Every watch that was made."""
    served: list[Any]
    """The polls that were ordinary calls, or became one."""
    calls: list[CallMetrics]
    budgets: list[MemoryBudget]
    background: Background

    async def receive(self, polled: s.ReceiveMessageRequest, metadata: Metadata = IDLE) -> list[Any]:
        """The frames of a poll."""
        return [one async for one in self.stub.ReceiveMessage(polled, metadata=metadata)]

    async def warm_up(self, metadata: Metadata = IDLE, **more: Any) -> None:
        """Poll once, so that the snode knows the group, and the enode is quiet."""
        frames = await self.receive(request(0.1, **more), metadata)
        assert frames[0].status.code == Code.MESSAGE_NOT_FOUND, frames
        self.served.clear()

    async def begin(self, metadata: Metadata = IDLE, **more: Any) -> Any:
        """A poll that waits."""
        timeout_s = more.pop("timeout_s", None)
        call = self.stub.ReceiveMessage(request(**more), metadata=metadata, timeout=timeout_s)
        await self.until(lambda: self.users >= 1)
        return call

    @property
    def users(self) -> int:
        """The number of pops that use watches."""
        return sum(watch.users for watch in self.watches)

    @property
    def counted(self) -> int:
        """The number of polls in the metrics."""
        return sum(h.count for one in self.calls for (method, _), h in one.calls.items() if method == PATH[1:])

    @property
    def used_bytes(self) -> int:
        """The memory of calls."""
        return sum(one.used_bytes for one in self.budgets)

    async def quiet_bytes(self) -> int:
        """The memory of calls without the short calls between processes."""
        found = self.used_bytes
        for _ in range(20):
            await self.cluster.clock.sleep(0.005)
            found = min(found, self.used_bytes)
        return found

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""
        while not condition():
            await self.cluster.clock.sleep(0.005)

    async def send(self, body: bytes, topic: str = "t") -> None:
        """Send a message."""
        async with connect(self.cluster.address) as mq, mq.producer(topic) as producer:
            await producer.send(body)

    async def until_over(self) -> None:
        """Wait until no poll uses a watch, and none is an open call."""
        await self.until(lambda: self.users == 0)
        await self.until(lambda: not any(one.open_streams.get(PATH[1:], 0) for one in self.calls))


@pytest.fixture
def opening(tmp_path: Path, each_transport: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that opens a cluster in which all pops share their waits."""
    monkeypatch.setattr("ortoo.snode.pop.processor.DIRECT_POPS_MAX", 0)
    watches: list[PopWatch] = []
    served: list[Any] = []
    calls: list[CallMetrics] = []
    budgets: list[MemoryBudget] = []
    make, receive = PopWatches._watch, ReceiveMessageActivity.receive
    begin, share = CallMetrics.__init__, CallMemory.__init__

    def made(self: PopWatches, *place: Any) -> PopWatch:
        watch = make(self, *place)
        if watch not in watches:
            watches.append(watch)
        return watch

    def received(self: ReceiveMessageActivity, *arguments: Any) -> Any:
        served.append(arguments)
        return receive(self, *arguments)

    def begun(self: CallMetrics, *arguments: Any) -> None:
        begin(self, *arguments)
        calls.append(self)

    def shared(self: CallMemory, budget: MemoryBudget) -> None:
        share(self, budget)
        budgets.append(budget)

    monkeypatch.setattr(CallMemory, "__init__", shared)
    monkeypatch.setattr(PopWatches, "_watch", made)
    monkeypatch.setattr(ReceiveMessageActivity, "receive", received)
    monkeypatch.setattr(CallMetrics, "__init__", begun)

    @asynccontextmanager
    async def opened(*, is_guarded: bool = False) -> AsyncIterator[Polls]:
        async with (
            asyncio.timeout(120),
            guarded(tmp_path) if is_guarded else open_cluster(tmp_path) as cluster,
            grpc.aio.insecure_channel(cluster.address) as channel,
            Background("test") as background,
        ):
            if not is_guarded:
                await cluster.create_topic("t", queues=1)
            stub = MessagingServiceStub(channel)
            yield Polls(cluster, stub, each_transport == "h2", watches, served, calls, budgets, background)

    return opened


async def test_a_poll_ends_without_messages_at_its_time(opening: Any) -> None:
    """It has the frames of an ordinary call, and counts as a call. On h2 it is none."""
    async with opening() as polls:
        await polls.warm_up()
        await polls.until_over()
        before, began_s = polls.counted, polls.cluster.clock.monotonic_s()
        frames = await polls.receive(request(0.4))
        assert polls.cluster.clock.monotonic_s() - began_s >= 0.4
        assert [one.WhichOneof("content") for one in frames] == ["status", "delivery_timestamp"]
        assert (frames[0].status.code, frames[0].status.message) == (
            Code.MESSAGE_NOT_FOUND,
            "MESSAGE_NOT_FOUND: no new message",
        )
        await polls.until_over()
        assert len(polls.served) == (0 if polls.is_h2 else 1)
        assert polls.counted - before == 1


async def test_a_poll_with_a_negative_wait_ends_at_once(opening: Any) -> None:
    """It holds up no other call, also without a deadline."""
    async with opening() as polls:
        await polls.warm_up()
        await polls.until_over()
        frames = await polls.receive(request(-1))
        assert frames[0].status.code == Code.MESSAGE_NOT_FOUND


@ONLY_H2
async def test_an_idle_poll_renews_the_delivery_mode(opening: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request confirms it before the confirmation ends. Otherwise all polls would then be calls for a moment.

    A mode that an enode refuses is no longer confirmed, so that the next poll is a call, which reports the error.
    """
    renewed: list[DeliveryModes] = []
    answered = asyncio.Event()

    async def refuse(self: DeliveryModes, *mode: Any) -> None:
        renewed.append(self)
        await answered.wait()
        raise Conflict("another mode")

    async with opening() as polls:
        await polls.warm_up()
        await polls.until_over()
        with monkeypatch.context() as patched:
            patched.setattr(DeliveryModes, "_confirm", refuse)
            patched.setattr("ortoo.snode.topics.group_settings.RENEW_AHEAD_S", 1e9)
            await asyncio.gather(*[polls.receive(request(0.2)) for _ in range(3)])
            assert (len(renewed), len(polls.served)) == (1, 0)
            answered.set()
            await polls.until(lambda: not renewed[0]._renewing)
        await polls.receive(request(0.2))
        assert len(polls.served) == 1
        await polls.receive(request(0.2))
        assert len(polls.served) == 1


async def test_a_message_ends_one_poll(opening: Any) -> None:
    """It is received with a handle that can be acknowledged, and the other poll waits on."""
    async with opening() as polls:
        await polls.warm_up()
        waiting = [await polls.begin(), await polls.begin(OTHER)]
        await polls.until(lambda: polls.users == 2)
        collected = [polls.background.spawn("poll", _collected(one)) for one in waiting]
        await polls.send(b"x")
        done, _ = await asyncio.wait(collected, return_when=asyncio.FIRST_COMPLETED)
        [frames] = [one.result() for one in done]
        assert [one.message.body for one in frames if one.HasField("message")] == [b"x"]
        handle = frames[1].message.system_properties.receipt_handle
        acks = s.AckMessageRequest(
            group=d.Resource(name="g"), topic=d.Resource(name="t"), entries=[s.AckMessageEntry(receipt_handle=handle)]
        )
        assert (await polls.stub.AckMessage(acks, metadata=IDLE)).status.code == Code.OK
        await polls.send(b"y")
        [other] = [one for one in collected if one not in done]
        assert [one.message.body for one in await other if one.HasField("message")] == [b"y"]
        await polls.until_over()


async def _collected(call: Any) -> list[Any]:
    return [one async for one in call]


async def cancel(polls: Polls, call: Any) -> None:
    call.cancel()


async def let_the_deadline_pass(polls: Polls, call: Any) -> None:
    assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("end", [cancel, let_the_deadline_pass])
async def test_no_message_goes_to_a_caller_that_left(opening: Any, end: Any) -> None:
    """A message that comes afterwards is another client's first delivery."""
    async with opening() as polls:
        await polls.warm_up()
        call = await polls.begin(timeout_s=4.0 if end is let_the_deadline_pass else None, wait_s=LONG_S)
        await end(polls, call)
        await polls.until_over()
        await polls.send(b"x")
        frames = await polls.receive(request(), OTHER)
        [message] = [one.message for one in frames if one.HasField("message")]
        assert (message.body, message.system_properties.delivery_attempt) == (b"x", 1)


@pytest.mark.parametrize("is_reset", [False, True])
async def test_no_message_is_lost_with_a_connection(opening: Any, is_reset: bool) -> None:
    """The connection or the stream of the poll ends just as a message comes."""
    async with opening() as polls:
        for number in range(5):
            await polls.warm_up()
            await polls.until_over()
            async with deaf_client(polls.cluster.address, window_bytes=WINDOW_BYTES) as client:
                client.call(PATH, request().SerializeToString(), headers=dict(IDLE))
                await polls.until(lambda: polls.users == 1)
                assert len(polls.served) == (0 if polls.is_h2 else 1)
                sending = polls.background.spawn("send", polls.send(b"%d" % number))
                for _ in range(number):
                    await polls.cluster.clock.sleep(0)
                (client.reset if is_reset else client.drop)()
                await sending
            frames = await polls.receive(request(), OTHER)
            [message] = [one.message for one in frames if one.HasField("message")]
            assert message.body == b"%d" % number
            entry = s.AckMessageEntry(receipt_handle=message.system_properties.receipt_handle)
            acks = s.AckMessageRequest(group=d.Resource(name="g"), topic=d.Resource(name="t"), entries=[entry])
            assert (await polls.stub.AckMessage(acks, metadata=OTHER)).status.code == Code.OK
            await polls.until_over()


async def test_a_client_that_ends_gets_an_answer_and_no_message(opening: Any) -> None:
    """Its poll ends at once, without a message that it would not process."""
    async with opening() as polls:
        await polls.warm_up()
        call = await polls.begin()
        left = s.NotifyClientTerminationRequest(group=d.Resource(name="g"))
        assert (await polls.stub.NotifyClientTermination(left, metadata=IDLE)).status.code == Code.OK
        frames = await _collected(call)
        assert frames[0].status.code == Code.MESSAGE_NOT_FOUND
        await polls.until_over()
        assert len(polls.served) == (0 if polls.is_h2 else 1)


@ONLY_H2
async def test_a_client_ends_just_as_a_message_comes(opening: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its poll has become a call that has not begun yet. It gets no message, and the client is not registered again."""
    woken, receiving = IdlePoll._on_woken, list[IdlePolls]()
    begin = IdlePolls.__init__

    def made(self: IdlePolls, *arguments: Any) -> None:
        begin(self, *arguments)
        receiving.append(self)

    def woken_and_ended(self: IdlePoll, future: Any) -> None:
        woken(self, future)
        receiving[0]._clients.remove("idle")
        self._open.end("idle")

    monkeypatch.setattr(IdlePolls, "__init__", made)
    async with opening() as polls:
        await polls.warm_up()
        await polls.until_over()
        with monkeypatch.context() as patch:
            patch.setattr(IdlePoll, "_on_woken", woken_and_ended)
            call = await polls.begin()
            await polls.send(b"x")
            frames = await _collected(call)
        assert [one.WhichOneof("content") for one in frames] == ["status", "delivery_timestamp"]
        assert receiving[0]._clients.get("idle") is None
        [message] = [one.message for one in await polls.receive(request(), OTHER) if one.HasField("message")]
        assert (message.body, message.system_properties.delivery_attempt) == (b"x", 1)
        await polls.until_over()


async def test_a_consumer_that_waits_is_not_away(opening: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """When its poll becomes a call, no enode is asked for messages that it may have popped at another snode."""
    may_repeat = list[bool]()
    begin = RecentAttempts.begin

    def begun(self: RecentAttempts, *arguments: Any) -> bool:
        may_repeat.append(begin(self, *arguments))
        return may_repeat[-1]

    monkeypatch.setattr("ortoo.snode.pop.attempts.NEW_S", 0.01)
    async with opening() as polls:
        await polls.warm_up(attempt_id="first")
        monkeypatch.setattr(RecentAttempts, "begin", begun)
        call = await polls.begin(attempt_id="second")
        monkeypatch.setattr("ortoo.snode.pop.attempts.AWAY_S", 2.0)
        await polls.cluster.clock.sleep(2.5)
        await polls.send(b"x")
        assert [one.message.body for one in await _collected(call) if one.HasField("message")] == [b"x"]
        assert may_repeat == ([False] * 2 if polls.is_h2 else [False])
        await polls.until_over()


@ONLY_H2
async def test_kept_kinds_of_polls_share_their_queues(opening: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a client with many filters would use the memory of a long list of queues for each of them."""
    receiving, begin = list[IdlePolls](), IdlePolls.__init__

    def made(self: IdlePolls, *arguments: Any) -> None:
        begin(self, *arguments)
        receiving.append(self)

    monkeypatch.setattr(IdlePolls, "__init__", made)
    async with opening() as polls:
        await polls.warm_up()
        for tag in "abc":
            await polls.receive(request(0.05, filter_expression=d.FilterExpression(type=d.TAG, expression=tag)))
        kinds = receiving[0]._kinds.values()
        assert len({id(queues) for kind in kinds for queues in kind.places.places}) == 1
        assert len(kinds) == 3


async def test_the_topic_of_a_poll_is_deleted(opening: Any) -> None:
    """The poll ends at its time without messages. The next one is refused."""
    async with opening() as polls:
        await polls.warm_up()
        call = await polls.begin(wait_s=2)
        async with connect(polls.cluster.address) as mq:
            await mq.admin.delete_topic("t")
        assert (await _collected(call))[0].status.code in (Code.MESSAGE_NOT_FOUND, Code.TOPIC_NOT_FOUND)
        await polls.until_over()
        while (frames := await polls.receive(request(0.1)))[0].status.code == Code.MESSAGE_NOT_FOUND:
            pass  # the snode has not read the deletion yet
        assert [one.status.code for one in frames] == [Code.TOPIC_NOT_FOUND]


async def test_polls_follow_the_settings_of_their_group(opening: Any) -> None:
    """Equal polls are decoded once, but a group that is disabled meanwhile refuses the next one."""
    async with opening() as polls, connect(polls.cluster.address) as mq:
        await polls.warm_up()
        assert (await polls.receive(request(0.1)))[0].status.code == Code.MESSAGE_NOT_FOUND
        await mq.admin.groups.update("g", consume_enabled=False)
        while (frames := await polls.receive(request(0.1)))[0].status.code == Code.MESSAGE_NOT_FOUND:
            pass
        assert "disabled" in frames[0].status.message
        await mq.admin.groups.update("g", consume_enabled=True)
        while (await polls.receive(request(0.1)))[0].status.code != Code.MESSAGE_NOT_FOUND:
            pass


async def test_polls_follow_the_queues_of_their_topic(opening: Any) -> None:
    """Equal polls are decoded once, but each waits for the messages of all queues that exist when it begins."""
    async with opening() as polls, connect(polls.cluster.address) as mq:
        await polls.warm_up()
        assert (await polls.receive(request(0.1)))[0].status.code == Code.MESSAGE_NOT_FOUND
        await mq.admin.update_topic("t", read_queue_count=2, write_queue_count=2)
        received = set[bytes]()
        call = await polls.begin()
        collected = polls.background.spawn("poll", _collected(call))
        async with mq.producer("t") as producer:
            for number in range(8):
                await producer.send(b"%d" % number)
        while len(received) < 8:
            received |= {one.message.body for one in await collected if one.HasField("message")}
            collected = polls.background.spawn("poll", polls.receive(request(0.5)))
        await collected


async def test_names_of_a_namespace(opening: Any) -> None:
    """The message that ends a poll has the name by which the client knows its topic."""
    async with opening() as polls:
        await polls.cluster.create_topic("ns%t", queues=1)
        await polls.warm_up(namespace="ns")
        call = await polls.begin(namespace="ns")
        await polls.send(b"x", "ns%t")
        [message] = [one.message for one in await _collected(call) if one.HasField("message")]
        assert (message.topic.name, message.topic.resource_namespace) == ("t", "ns")


async def test_a_poll_ends_with_the_right_to_it(opening: Any, tmp_path: Path) -> None:
    """A message that is sent afterwards is not leased."""
    async with opening(is_guarded=True) as polls:
        reader = (*IDLE, *signed(polls.cluster, "reader"))
        await polls.warm_up(reader)
        call = await polls.begin(reader)
        (tmp_path / "access.toml").write_text(RULES.replace('topics = { t = "SUB" }', "topics = {}"))
        frames = await _collected(call)
        assert frames[-1].status.code == Code.FORBIDDEN, frames
        await polls.until_over()
        assert len(polls.served) == 1, "with access rules, each poll is a call"
        async with as_user(polls.cluster, "shop") as shop, shop.producer("t") as producer:
            await producer.send(b"x")
        frames = await polls.receive(request(), (*OTHER, *signed(polls.cluster, "shop")))
        [message] = [one.message for one in frames if one.HasField("message")]
        assert message.system_properties.delivery_attempt == 1


async def test_the_memory_of_polls_is_counted(opening: Any) -> None:
    """Each open poll counts as an open call."""
    async with opening() as polls:
        await polls.warm_up()
        await polls.until_over()
        before = await polls.quiet_bytes()
        calls = [await polls.begin() for _ in range(5)]
        await polls.until(lambda: polls.users == 5)
        assert polls.used_bytes - before >= 5 * CALL_BYTES
        for call in calls:
            call.cancel()
        await polls.until(lambda: polls.used_bytes <= before)
        await polls.until_over()


async def test_polls_do_not_delay_the_end_of_a_snode(opening: Any) -> None:
    """The polls that are open after its grace period end with a status."""
    async with opening() as polls:
        await polls.warm_up()
        call = await polls.begin()
        await polls.cluster.close("snode-0")
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
