"""Push sessions of groups over a fake enode, made as in a snode, without other parts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from ortoo.common.directory.group import Group
from ortoo.common.errors import NotFound
from ortoo.common.process.background import Background
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import encode
from ortoo.common.telemetry.metrics import Metrics
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.stream_ages import StreamAges
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes import EnodeComponents
from ortoo.snode.enodes.link import FlushMode, Interruption
from ortoo.snode.membership.consumer_groups import ConsumerGroups
from ortoo.snode.membership.group_filters import GroupFilters
from ortoo.snode.membership.group_members import CloseReason, GroupMember, Subscription
from ortoo.snode.membership.group_membership import Membership
from ortoo.snode.observe.traffic import Traffic
from ortoo.snode.pull.offsets import SessionStart, StartFrom
from ortoo.snode.push.plan import PushPlan
from ortoo.snode.push.session import PushSession
from ortoo.snode.push.sessions import PushSessions
from ortoo.snode.settings import SnodeSettings
from ortoo.snode.topics import TopicComponents
from ortoo.verification.time.virtual_time import running_clock
from tests.unit.snode.fake_enode import FakeEnode

E = TypeVar("E")
QUEUES = [Queue("t", "e", number) for number in range(4)]
FROM_FIRST = SessionStart(StartFrom.FIRST)
EXPIRY_S = 60.0


class NoNameServer:
    """It has no topic, and creates every group."""

    async def get_topic(self, name: str) -> Any:
        """Errors: NotFound."""
        raise NotFound(field="topic")

    async def ensure_group(self, name: str) -> Group:
        """A group with the default settings."""
        return Group(name, 1)


class Bench:
    """Groups and their sessions."""

    def __init__(self, enode: FakeEnode, background: Background) -> None:
        self.enode = enode
        self.clock = running_clock()
        self.memory = MemoryBudget(3 << 30, self.clock)
        self.metrics = Metrics()
        self.directory = enode.directory()
        self.traffic = Traffic()
        chance, nobody = Randomness(1), NoNameServer()
        settings: Any = SnodeSettings(session_expiry_s=EXPIRY_S)
        name_server: Any = nobody
        channels: Any = None
        ages = StreamAges(0, self.clock, chance)
        runtime = Runtime(settings, "i", background, channels, self.metrics, self.clock, chance, self.memory, ages)
        watch = DirectoryWatch(self.directory, name_server, clock=self.clock, randomness=chance)
        cluster = ClusterView(self.directory, watch, name_server)
        self.groups = ConsumerGroups(self.directory, Membership(self.clock), self.clock)
        enodes = EnodeComponents(runtime, cluster, enode.to)
        topics = TopicComponents(runtime, cluster, enodes.links)
        filters = GroupFilters(self.groups.membership)
        self.sessions = PushSessions(runtime, cluster, enodes, topics, self.groups, self.traffic, self.park, filters)
        self.parts = self.sessions.context
        self.watch = watch
        background.spawn("groups", self.groups.run())

    async def park(self, group: str, queue: Queue, interruption: Interruption) -> bool:
        """Park nothing."""
        return False

    async def open(
        self, client_id: str = "c", group: str = "g", *, messages: int = 1000, **planned: Any
    ) -> PushSession:
        """Open a session as a client's call does, with credit for `messages` messages."""
        told: dict[str, Any] = {"expiry_ms": int(self.sessions.expiry_s * 1000)}
        chosen = told | {"filters": {"t": None}, "start": FROM_FIRST} | planned
        plan = PushPlan(group, client_id, **chosen)
        subscriptions = tuple(Subscription(name) for name in plan.filters)

        def as_member(session: PushSession) -> GroupMember:
            ids = (session.client_id, session.member_session_id)
            return GroupMember(*ids, subscriptions=subscriptions, broadcast=session.plan.broadcast)

        session = await self.sessions.open(plan, as_member)
        session.grant(messages, 1 << 30)
        return session

    async def join(self, client_id: str, messages: int = 1000, *, from_beginning: bool = True) -> PushSession:
        """A separate session; a queue without an offset starts with its oldest message, or at its end."""
        start = SessionStart(StartFrom.FIRST if from_beginning else StartFrom.LAST)
        session = PushSession(self.parts, PushPlan("g", client_id, {"t": None}, start))
        session.grant(messages, 1 << 30)
        member = GroupMember(client_id, session.session_id, subscriptions=(Subscription("t"),))
        self.groups.join("g", member, session)
        return session

    async def close(self, session: PushSession) -> None:
        """End a session as its owner does."""
        member = self.groups.membership.members("g").get(session.client_id)
        if member is not None:
            session.leave_group(member)
        await session.close(CloseReason.CLIENT_LEFT, "bye")

    async def store(self, queue_id: int, *bodies: bytes) -> None:
        """Append one batch."""
        await self.enode.append(77, queue_id, encode(bodies, now_ms=1), FlushMode.DEFAULT)

    async def rest(self, seconds: float = 0.001) -> None:
        """Let all tasks run, and this time pass."""
        await self.clock.sleep(seconds)


async def event(session: PushSession, kind: type[E]) -> E:
    """The next event of a kind."""
    while not isinstance(found := await session.outbox.next(), kind):
        pass
    return found


@contextlib.asynccontextmanager
async def bench(enode: FakeEnode | None = None) -> AsyncIterator[Bench]:
    """A snode's push sessions over an enode, with an open gate unless another enode is given."""
    async with asyncio.timeout(1_000), Background("test") as background:
        yield Bench(enode or FakeEnode(), background)
