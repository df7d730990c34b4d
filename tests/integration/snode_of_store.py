"""The memberships of snodes over one real Valkey, without the rest of a snode."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.common.telemetry.metrics import Metrics
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.stream_ages import StreamAges
from ortoo.snode.membership import shared_membership, store
from ortoo.snode.membership.group_members import GroupMember, Subscription
from ortoo.snode.membership.redis_url import redis_client
from ortoo.snode.settings import SnodeSettings
from tests.golden.membership import group_membership as older_membership
from tests.golden.membership import store as older_store

CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class StoreSnode:
    """The membership of one snode, and its connection to the store."""

    name: str
    membership: Any
    store: Any

    def join(self, group: str, client_id: str) -> None:
        """A consumer joins a group here."""
        session = f"{client_id} at {self.name}"
        member = GroupMember(client_id, session, self.name, self.name, (Subscription("t"),), since_ms=CLOCK.now_ms())
        self.membership.join(group, member)

    def leave(self, group: str, client_id: str) -> None:
        """It leaves."""
        self.membership.leave(group, client_id, f"{client_id} at {self.name}")

    def members(self, group: str) -> dict[str, str]:
        """Client id to the snode of each known member."""
        return {client_id: one.snode for client_id, one in self.membership.members(group).items()}


@contextlib.asynccontextmanager
async def store_snode(name: str, url: str, *, older: bool = False, timeout_s: float = 2.0) -> AsyncIterator[StoreSnode]:
    """A snode that shares membership through the store; with `older`, by the code that read all groups."""
    settings = SnodeSettings(name=name, redis_url=url, membership_timeout_s=timeout_s)
    shared = older_membership.SharedMembership if older else shared_membership.SharedMembership
    make: Any = older_store.MembershipStore if older else store.MembershipStore
    async with Background(name) as background:
        chance = Randomness(1)
        ages = StreamAges(0, CLOCK, chance)
        runtime = Runtime(
            settings, name, background, Channels(), Metrics(), CLOCK, chance, MemoryBudget(1 << 30), ages
        )  # fmt: skip
        membership = shared(name, CLOCK)
        connection = make(runtime, redis_client(url), membership)
        async with connection.open():
            yield StoreSnode(name, membership, connection)


async def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait until a condition is true."""
    await until_none(lambda: [] if condition() else ["the condition is not true"], timeout_s)


async def until_none(remaining: Callable[[], list[object]], timeout_s: float = 60.0) -> None:
    """Wait until nothing remains."""
    deadline_s = CLOCK.monotonic_s() + timeout_s
    while left := remaining():
        assert CLOCK.monotonic_s() < deadline_s, left
        await CLOCK.sleep(0.01)
