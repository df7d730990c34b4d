"""An enode with three replicas as processes, beside a name server and a snode, and its operator's actions."""

import contextlib
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ortoo.cli.demo.role_subprocess import free_addresses
from ortoo.client import Client, OrtooError, ReplicaInfo
from ortoo.common.process.clock import SystemClock
from ortoo.enode.leadership.in_sync_health import IN_SYNC
from ortoo.verification.servers.processes import SMALL_STORE, ProcessCluster, RoleProcess
from tests.e2e.replica_network import ReplicaNetwork

ENODE = "enode-0"
REPLICAS = 3
LOOK_S = 0.05
LEADING, WAITING, LEARNING, AWAY = "leading", "waiting", "learning", "away"


@contextlib.asynccontextmanager
async def replica_cluster(
    folder: Path,
    *,
    name_servers: int = 1,
    database_url: str = "",
    snodes: int = 1,
    redis_url: str = "",
    enode_environ: Mapping[str, object] = SMALL_STORE,
    metrics: bool = False,
    lines: ReplicaNetwork | None = None,
    make_replica: Callable[[str, Path, Mapping[str, object]], RoleProcess] = RoleProcess,
) -> AsyncIterator[ProcessCluster]:
    """Start all of it in `folder`; leave nothing running. Several name servers share the database, snodes the Redis.

    With `metrics` each process serves its own at METRICS_ADDRESS of its environment. With `lines` replicas reach each
    other by those. `make_replica` makes the process of a replica.
    """
    free = free_addresses(2 * REPLICAS + name_servers + snodes)
    addresses, told_at = free[:REPLICAS], iter(free[REPLICAS:])

    def measured() -> dict[str, str]:
        return {"METRICS_ADDRESS": next(told_at)} if metrics else {}

    database_url = database_url or f"sqlite:///{folder}/names.db"
    namesrvs = [
        RoleProcess(
            "namesrv", folder / f"namesrv-{n}", {"DATABASE_URL": database_url, "NAME": f"namesrv-{n}", **measured()}
        )
        for n in range(name_servers)
    ]
    async with contextlib.AsyncExitStack() as parts:
        for namesrv in namesrvs:
            parts.push_async_callback(namesrv.kill)
            await namesrv.start()
        known = ";".join(one.address for one in namesrvs)
        enodes = []
        for number, address in enumerate(addresses, 1):
            environ = {
                **enode_environ,
                **measured(),
                "NAME": ENODE,
                "REPLICA": number,
                "REPLICAS": REPLICAS,
                "REPLICA_LISTEN_ADDRESS": address,
                "REPLICA_ADDRESSES": ";".join(addresses),
                "NAMESRV_ADDRESS": known,
                **(lines.settings(number) if lines else {}),
            }
            enodes.append(make_replica("enode", folder / f"member-{number}", environ))
            parts.push_async_callback(enodes[-1].kill)
            if lines:
                lines.processes = enodes
            await enodes[-1].start()
        fronts = []
        for n in range(snodes):
            settings = {"NAME": f"snode-{n}", "NAMESRV_ADDRESS": known, "REDIS_URL": redis_url, **measured()}
            fronts.append(RoleProcess("snode", folder / f"snode-{n}", settings))
            parts.push_async_callback(fronts[-1].kill)
            await fronts[-1].start()
        yield ProcessCluster(folder, namesrvs[0], enodes, fronts)


async def members_of(mq: Client) -> tuple[ReplicaInfo, ...]:
    """The replicas as the name server knows them; none while it does not answer."""
    with contextlib.suppress(OrtooError):
        return next((one.replicas for one in await mq.admin.replicas.list(ENODE)), ())
    return ()


async def leading(cluster: ProcessCluster, mq: Client) -> RoleProcess:
    """The leader, as soon as a running replica reports it."""
    while True:
        for one in await members_of(mq):
            process = cluster.enodes[one.number - 1]
            if one.state == LEADING and process.alive:
                return process
        await SystemClock().sleep(LOOK_S)


async def reign(mq: Client) -> tuple[int, int]:
    """Replica number and epoch of the leader, as soon as a name server reports them."""
    while True:
        for one in await members_of(mq):
            if one.state == LEADING:
                return one.number, one.epoch
        await SystemClock().sleep(LOOK_S)


async def whole(mq: Client) -> None:
    """Return when there are three replicas and a leader, and no replica lags far behind the committed end."""
    while True:
        known = await members_of(mq)
        states = [one.state for one in known]
        if len(known) == REPLICAS and LEADING in states and not {AWAY, WAITING, LEARNING} & set(states):
            return
        await SystemClock().sleep(LOOK_S)


async def until_in_sync(member: RoleProcess) -> None:
    """Return when the readiness probe of a replica succeeds, which is the one of the chart."""
    async with grpc.aio.insecure_channel(member.address) as channel:
        stub, request = health_pb2_grpc.HealthStub(channel), health_pb2.HealthCheckRequest(service=IN_SYNC)
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                if (await stub.Check(request)).status == health_pb2.HealthCheckResponse.SERVING:
                    return
            await SystemClock().sleep(LOOK_S)


def number_of(member: RoleProcess) -> int:
    """The number of a process among the replicas."""
    return int(str(member.environ["REPLICA"]))


async def replace_disk(mq: Client, lost: RoleProcess) -> None:
    """Empty the disk of a killed replica, start it, add it, and remove the replica that it was."""
    number = number_of(lost)
    former: set[str] = set()
    while not former:
        former = {one.disk for one in await members_of(mq) if one.number == number}
    shutil.rmtree(lost.data)
    await lost.start()
    while True:
        mine = [one for one in await members_of(mq) if one.number == number]
        with contextlib.suppress(OrtooError):  # there is no leader just now, or the last step is not committed
            if waiting := [one for one in mine if one.state == WAITING]:
                await mq.admin.replicas.add(ENODE, number, waiting[0].disk)
            elif len(mine) > 1 and not any(one.state == LEARNING for one in mine):
                gone = [one for one in mine if one.state == AWAY]
                await mq.admin.replicas.remove(ENODE, number, gone[0].disk if gone else "")
            elif len(mine) == 1 and mine[0].disk not in former and mine[0].state not in (AWAY, LEARNING):
                return
        await SystemClock().sleep(LOOK_S)
