"""The two directions of one Push call: whom it opens a session for."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from ortoo.common.errors import NotFound
from ortoo.snode.cluster.routes import Topic
from ortoo.snode.membership.members import Member, Subscription
from ortoo.snode.rpc.push import PushCall
from ortoo.testing.simulation.kernel.virtual_time import in_virtual_time
from ortoo.v1 import consumer_pb2 as pb
from tests.unit.snode.fake_enode import TOPIC
from tests.unit.snode.push.push_bench import bench


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
    """A client asks for its push session, and says no more."""

    def __aiter__(self) -> AsyncIterator[pb.PushRequest]:
        return self

    async def __anext__(self) -> pb.PushRequest:
        return pb.PushRequest(open=pb.OpenSession(group="g", client_id="c", session_id="client's"))


@in_virtual_time
async def test_a_client_whose_own_session_ends_while_its_push_session_opens_is_no_member() -> None:
    """Nobody would take it out of its group again."""
    registered = Member("c", "client's", subscriptions=(Subscription("u"),), active=False)
    async with bench() as it:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def get_topic(name: str) -> Topic:
            asked.set()
            await answer.wait()
            return dataclasses.replace(TOPIC, name=name, topic_id=78)

        it.watch._name_server = SimpleNamespace(get_topic=get_topic)  # type: ignore[assignment]
        clients: Any = Clients(SimpleNamespace(consumers={"g": registered}))
        open_ = it.parts.background.asked("open", PushCall(it.sessions, clients, Opening(), registered).open())
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
