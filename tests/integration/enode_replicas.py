"""An enode of several replicas in this process, beside the other roles of a cluster."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from ortoo.enode.app import RunningEnode, open_enode
from ortoo.enode.settings import EnodeSettings
from ortoo.v1 import namesrv_pb2
from ortoo.verification.servers.cluster import STOP_GRACE_S, InProcessCluster
from ortoo.verification.servers.ports import free_address, free_ports


def one_member(
    cluster: InProcessCluster, number: int, address: str, /, **chosen: Any
) -> AbstractAsyncContextManager[RunningEnode]:
    """A replica of `enode-0` that others reach at `address`; `chosen` are settings of it."""
    settings: dict[str, Any] = {
        "name": "enode-0",
        "replica": number,
        "listen_address": free_address(),
        "replica_listen_address": address,
        "namesrv_address": cluster.address_of("namesrv-0"),
        "data_dir": cluster.folder / f"replica-{number}",
        "store": cluster.store,
        "stop_grace_s": STOP_GRACE_S,
    }
    return open_enode(EnodeSettings(**settings | chosen), clock=cluster.clock, randomness=cluster.randomness)


@contextlib.asynccontextmanager
async def open_members(
    cluster: InProcessCluster, count: int = 3, /, **chosen: Any
) -> AsyncIterator[list[RunningEnode]]:
    """Run `enode-0` with `count` replicas, which form a new set."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    chosen |= {"replicas": count, "replica_addresses": ";".join(addresses)}
    async with contextlib.AsyncExitStack() as stack:
        opening = [one_member(cluster, number, address, **chosen) for number, address in enumerate(addresses, 1)]
        yield [await stack.enter_async_context(one) for one in opening]


async def leading(cluster: InProcessCluster, members: Sequence[RunningEnode]) -> RunningEnode:
    """The serving replica, as soon as there is one and its name server knows it."""
    async with asyncio.timeout(60):
        while True:
            for one in members:
                if one.process.services is not None and one.process.driver is not None:
                    await _heard(cluster, one.process.settings.name, one.process.driver.leading_epoch or 0)
                    return one
            await cluster.clock.sleep(0.02)


async def _heard(cluster: InProcessCluster, enode: str, epoch: int) -> None:
    async for news in cluster.name_service.WatchRoutes(namesrv_pb2.WatchRoutesRequest()):
        if any(known.name == enode and known.alive and known.epoch >= epoch for known in news.enodes):
            return
