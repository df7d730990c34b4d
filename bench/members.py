"""The cost of members at other snodes for a snode that shares membership through Valkey."""

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bench.processes import memory_mib
from bench.report import Figures, main
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.common.telemetry.metrics import Metrics
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.stream_ages import StreamAges
from ortoo.snode.membership.group_members import GroupMember, Subscription
from ortoo.snode.membership.redis_url import redis_client
from ortoo.snode.membership.shared_membership import SharedMembership
from ortoo.snode.membership.store import MembershipStore
from ortoo.snode.settings import SnodeSettings
from ortoo.verification.servers.valkey import valkey

CLOCK = SystemClock()
METHOD = (
    "a Valkey with members of a living snode, two in each group. The memberships of two more snodes, in one process, "
    "start, and 16 consumers join one group at them. Measured until both know the whole group: time, processor time "
    "and memory of the process. Then processor time for a minute without changes, during a round through all records"
)
ELSEWHERE = "elsewhere"
IDLE_S = 60.0


def member(client_id: str, snode: str) -> GroupMember:
    """A consumer at a snode."""
    return GroupMember(client_id, f"session of {client_id}", snode, snode, (Subscription("t"),))


async def fill(client: Any, members: int) -> None:
    """Store the members of another snode."""
    await client.zadd("ortoo/alive", {ELSEWHERE: 9e15})
    for begin in range(0, members, 1_000):
        async with client.pipeline(transaction=False) as pipeline:
            for number in range(begin, min(begin + 1_000, members), 2):
                group, ids = f"x{number}", (f"c{number}", f"c{number + 1}")
                texts = {one: f"{number + 1} {member(one, ELSEWHERE).encode()}" for one in ids}
                pipeline.hset(f"ortoo/members/{group}", mapping=texts)
                pipeline.sadd("ortoo/groups", group)
                pipeline.hset("ortoo/versions", group, 2)
            await pipeline.execute()


@contextlib.asynccontextmanager
async def snode(name: str, url: str) -> AsyncIterator[SharedMembership]:
    """The membership of a snode that is connected to the store."""
    settings = SnodeSettings(name=name, redis_url=url)
    async with Background(name) as background:
        chance = Randomness()
        ages = StreamAges(0, CLOCK, chance)
        shared = (background, Channels(), Metrics(), CLOCK, chance, MemoryBudget(1 << 30), ages)
        membership = SharedMembership(name, CLOCK)
        async with MembershipStore(Runtime(settings, name, *shared), redis_client(url), membership).open():
            yield membership


async def measure_beside(url: str, members: int) -> Figures:
    """Measure two snodes beside these members."""
    began_s, began_cpu_s, began_mib = time.monotonic(), time.process_time(), memory_mib(os.getpid())
    async with snode("a", url) as first, snode("b", url) as second:
        for number in range(8):
            first.join("g", member(f"a{number}", "a"))
            second.join("g", member(f"b{number}", "b"))
        while not len(first.members("g")) == len(second.members("g")) == 16:
            await CLOCK.sleep(0.01)
        joined_s, joined_cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
        began_cpu_s = time.process_time()
        await CLOCK.sleep(IDLE_S)
        return {
            "members": members,
            "start_s": round(joined_s, 2),
            "start_cpu_s": round(joined_cpu_s, 2),
            "idle_cpu_percent": round(100 * (time.process_time() - began_cpu_s) / IDLE_S, 1),
            "memory_mib": round(memory_mib(os.getpid()) - began_mib, 1),
        }


async def measure(options: argparse.Namespace) -> Figures:
    """Measure beside an increasing number of members."""
    figures: Figures = {}
    for members in map(int, options.members.split(",")):
        with tempfile.TemporaryDirectory(prefix="ortoo-bench-") as folder:
            async with valkey(Path(folder)) as server:
                client = redis_client(server.url)
                await fill(client, members)
                await client.aclose()
                figures[f"members_{members}"] = await measure_beside(server.url, members)
    return figures


if __name__ == "__main__":
    main("members", METHOD, measure, members="2000,75000,200000")
