"""The two directions of one Push call, and the session that it opens."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from ortoo.common.errors import NotFound, Overloaded
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.wire import encode_queue
from ortoo.snode.membership.group_members import GroupMember, Subscription
from ortoo.snode.push.sessions import SESSION_FIXED_BYTES
from ortoo.snode.rpc.push import PushCall
from ortoo.snode.rpc.streams import MEMORY_FACTOR
from ortoo.v1 import consumer_pb2 as pb
from ortoo.verification.time.virtual_time import in_virtual_time
from tests.unit.snode.fake_enode import TOPIC
from tests.unit.snode.push.push_bench import bench


def wire_queue(queue_id: int) -> Any:
    """A queue that may exist."""
    return encode_queue(Queue("t", "e", queue_id))


class Clients:
    """One client's own session, while it lasts."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def get(self, session_id: str) -> Any:
        """Errors: NotFound."""
        if self.session is None:
            raise NotFound(f"there is no session {session_id!r}", field="session_id")
        return self.session


class Opening:
    """A client requests its push session, and then sends the test's requests."""

    def __init__(self, *more: pb.PushRequest) -> None:
        opening = pb.OpenSession(group="g", client_id="c", session_id="client's")
        self.requests = [pb.PushRequest(open=opening), *more]

    def __aiter__(self) -> AsyncIterator[pb.PushRequest]:
        return self

    async def __anext__(self) -> pb.PushRequest:
        if not self.requests:
            raise StopAsyncIteration
        return self.requests.pop(0)


class Talking(Opening):
    """A session that stays."""

    async def __anext__(self) -> pb.PushRequest:
        if not self.requests:
            await asyncio.Event().wait()
        return await super().__anext__()


@in_virtual_time
async def test_a_client_whose_own_session_ends_while_its_push_session_opens_is_no_member() -> None:
    """It would never be removed from its group."""
    registered = GroupMember("c", "client's", subscriptions=(Subscription("u"),), active=False)
    async with bench() as it:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def get_topic(name: str) -> Topic:
            asked.set()
            await answer.wait()
            return dataclasses.replace(TOPIC, name=name, topic_id=78)

        it.watch._name_server = SimpleNamespace(get_topic=get_topic)  # type: ignore[assignment]
        clients: Any = Clients(SimpleNamespace(consumers={"g": registered}))
        open_ = it.parts.background.start_future("open", PushCall(it.sessions, clients, Opening(), registered).open())
        await asked.wait()
        own, clients.session = clients.session, None
        answer.set()
        with pytest.raises(NotFound, match="there is no session"):
            await open_
        assert (it.sessions.all(), dict(it.groups.membership.members("g"))) == ([], {})
        assert own.consumers == {"g": registered}
        clients.session = own
        session = await PushCall(it.sessions, clients, Opening(), registered).open()
        joined = dataclasses.replace(registered, active=True)
        assert (own.consumers, dict(it.groups.membership.members("g"))) == ({"g": joined}, {"c": joined})
        assert it.sessions.all() == [session]


@in_virtual_time
async def test_what_a_client_wants_that_registers_again_while_its_push_session_opens_counts() -> None:
    """With its filter, in the topics that it named before and in those that it names now."""
    registered = GroupMember("c", "client's", subscriptions=(Subscription("t", "old"), Subscription("u")), active=False)
    now = (Subscription("t", "new"), Subscription("v", "new"))
    async with bench() as it:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def get_topic(name: str) -> Topic:
            asked.set()
            await answer.wait()
            return dataclasses.replace(TOPIC, name=name, topic_id=ord(name))

        it.watch._name_server = SimpleNamespace(get_topic=get_topic)  # type: ignore[assignment]
        own = SimpleNamespace(consumers={"g": registered})
        clients: Any = Clients(own)
        call = PushCall(it.sessions, clients, Talking(), registered)
        open_ = it.parts.background.start_future("open", call.open())
        await asked.wait()
        own.consumers["g"] = dataclasses.replace(registered, subscriptions=now)
        answer.set()
        session = await open_
        it.parts.background.spawn("read", call.read(session))
        await it.rest()
        assert it.groups.membership.members("g")["c"].subscriptions == now
        assert own.consumers["g"].subscriptions == now
        made = {name: wanted.expressions for name, wanted in session._filters.items() if wanted is not None}
        assert made == {"t": ("new", ""), "v": ("new", "")}


@in_virtual_time
async def test_what_a_client_says_and_a_session_keeps_is_drawn_from_the_budget_and_refused_beyond() -> None:
    """A client may name missing queues: 100,000 of them are a megabyte on the wire, and 14 here."""
    named = [pb.PushRequest(suspend=pb.Suspend(queues=map(wire_queue, range(count)))) for count in (1_000, 1)]
    registered = GroupMember("c", "client's", subscriptions=(Subscription("t"),), active=False)
    clients: Any = Clients(SimpleNamespace(consumers={"g": registered}))
    async with bench() as it:
        requests = Opening(*named)
        call = PushCall(it.sessions, clients, requests, registered)
        session = await call.open()
        first = session.memory.fixed_bytes
        assert first > SESSION_FIXED_BYTES
        for request in named:
            await call._handle(session, request)
            assert session.memory.fixed_bytes == first + MEMORY_FACTOR * request.suspend.ByteSize()
        it.memory.used_bytes = it.memory.bytes_max
        with pytest.raises(Overloaded):
            await call._handle(session, named[0])
        assert session.memory.fixed_bytes == first + MEMORY_FACTOR * named[1].suspend.ByteSize()
        for request in (named[1], pb.PushRequest(suspend=pb.Suspend())):  # not larger: not refused
            await call._handle(session, request)
        assert session.memory.fixed_bytes == first


@in_virtual_time
async def test_a_session_whose_request_is_too_large_for_what_is_left_is_not_opened() -> None:
    """It joins no group."""
    registered = GroupMember("c", "client's", subscriptions=(Subscription("t"),), active=False)
    clients: Any = Clients(SimpleNamespace(consumers={"g": registered}))
    async with bench() as it:
        requests = Opening()
        requests.requests[0].open.configured_queues.extend(map(wire_queue, range(10_000)))
        it.memory.bytes_max = 1 << 20
        with pytest.raises(Overloaded):
            await PushCall(it.sessions, clients, requests, registered).open()
        assert (it.sessions.all(), dict(it.groups.membership.members("g"))) == ([], {})


@in_virtual_time
async def test_a_client_that_disconnects_leaves_no_deliveries() -> None:
    """The end of its call cancels the reader of its requests, also while that waits for the session's queues."""
    async with bench() as it:
        await it.store(0, b"a")
        session, requests, clients = await it.open(), Opening(), Clients(None)
        await it.rest()
        assert session.outbox.has_deliveries
        requests.requests.clear()
        call = PushCall(it.sessions, clients, requests, GroupMember("c", session.session_id))  # type: ignore[arg-type]
        reading = it.parts.background.spawn("read", call.read(session))
        while not session.is_closing:
            await it.clock.sleep(0)
        reading.cancel()
        await it.rest()
        assert reading.cancelled()
        assert not session.outbox.has_deliveries
