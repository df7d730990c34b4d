"""The cost of a cluster's surroundings: the same loads on a plain cluster and on one that differs in one thing.

Both clusters run at the same time and are loaded in turn, because other programs on the machine then slow both down.
`python -m bench.surroundings --only "TLS"` measures one of them.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from bench.crowd import reading
from bench.processes import cluster, running_s
from bench.report import Figures, main, ratio
from bench.traffic import make_topic
from bench.workload import Bodies
from ortoo.cli.demo.role_subprocess import free_addresses
from ortoo.client import Client, Producer, connect
from ortoo.v1 import namesrv_pb2
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from tests.e2e.replica_cluster import leading, replica_cluster, whole
from tests.integration.certificates import Authority

METHOD = (
    "a plain cluster and one that differs in one thing, both running, loaded in turn for the rounds. `send` by 64 "
    "tasks and `send_many` of 256-byte bodies to 8 queues by one client. The ratios are medians over the rounds, each "
    "relative to the plain cluster. They are those of the rate and of the processor time a message of snode and enode"
)
TOPIC, QUEUES = "bench", 8
TOPICS, TOPICS_AT_ONCE = 10_000, 32
CLIENTS, GROUPS = 1_000, 100
TASKS, CHUNK_MESSAGES = 64, 8_192
ACCESS_KEY, SECRET_KEY = "bench", "bench-secret"
RULES = f"""
[[user]]
access_key = "{ACCESS_KEY}"
admin = true
"""


@dataclass(frozen=True, slots=True)
class Target:
    """A running cluster: how to connect to it, and the processes that a message passes through."""

    address: str
    process_ids: tuple[int, ...]
    access_key: str = ""
    secret_key: str = ""
    tls_ca_file: str = ""

    def connected(self) -> AbstractAsyncContextManager[Client]:
        """A client of this cluster."""
        return connect(
            self.address, access_key=self.access_key, secret_key=self.secret_key, tls_ca_file=self.tls_ca_file
        )

    def used_s(self) -> float:
        """Processor seconds so far of its processes."""
        return sum(map(running_s, self.process_ids))


Surrounding = Callable[[Path], AbstractAsyncContextManager[Target]]


@asynccontextmanager
async def plain(folder: Path, **snode_settings: str) -> AsyncIterator[Target]:
    """Three processes with default settings."""
    async with cluster(folder, snode_settings=snode_settings) as roles:
        yield Target(roles.address, (roles.snode.process_id, roles.enode.process_id))


@asynccontextmanager
async def many_topics(folder: Path) -> AsyncIterator[Target]:
    """10,000 other topics of one queue."""
    async with plain(folder) as target:
        async with target.connected() as mq:
            numbers = iter(range(TOPICS))

            async def create() -> None:
                for number in numbers:
                    await mq.admin.create_topic(f"other-{number}", queue_count=1)

            await asyncio.gather(*(create() for _ in range(TOPICS_AT_ONCE)))
        yield target


@asynccontextmanager
async def many_clients(folder: Path) -> AsyncIterator[Target]:
    """1,000 connected push consumers of another topic, which is empty."""
    async with plain(folder) as target:
        await make_topic(target.address, "idle", QUEUES)
        async with reading(target.address, "idle", CLIENTS, GROUPS) as readers:
            await readers.received()
            async with target.connected() as mq:
                while len(await mq.admin.groups.list_clients()) < CLIENTS:
                    await readers.received()
            yield target


@asynccontextmanager
async def three_replicas(folder: Path) -> AsyncIterator[Target]:
    """An enode of three replicas; all of them count."""
    async with replica_cluster(folder, enode_environ={}) as roles:
        async with connect(roles.snode.address) as mq:
            await whole(mq)
            await leading(roles, mq)
        yield Target(roles.snode.address, (roles.snode.pid, *(one.pid for one in roles.enodes)))


@asynccontextmanager
async def tls(folder: Path) -> AsyncIterator[Target]:
    """Clients connect by TLS; the processes call each other in plaintext."""
    authority = await Authority.make(folder / "authority")
    made = await authority.sign("snode", "localhost")
    [address] = free_addresses(1)
    settings = {
        "TLS_LISTEN_ADDRESS": address,
        "TLS_CERTIFICATE_FILE": str(made.certificate_file),
        "TLS_KEY_FILE": str(made.key_file),
    }
    async with plain(folder, **settings) as target:
        own = f"localhost:{address.rpartition(':')[2]}"
        yield Target(own, target.process_ids, tls_ca_file=str(authority.ca_file))


@asynccontextmanager
async def access_control(folder: Path) -> AsyncIterator[Target]:
    """Every call is signed, and its user's permissions are checked."""
    rules = folder / "access.toml"
    rules.write_text(RULES)
    settings = {"ACCESS_FILE": str(rules), "INSECURE": "true"}
    async with (
        cluster(folder, snode_settings=settings) as roles,
        grpc.aio.insecure_channel(roles.namesrv.address) as channel,
    ):
        user = namesrv_pb2.User(access_key=ACCESS_KEY, enabled=True)
        await NameServiceStub(channel).PutUser(namesrv_pb2.PutUserRequest(user=user, secret_key=SECRET_KEY))
        yield Target(roles.address, (roles.snode.process_id, roles.enode.process_id), ACCESS_KEY, SECRET_KEY)


SURROUNDINGS: dict[str, Surrounding] = {
    f"{TOPICS:,} topics": many_topics,
    f"{CLIENTS:,} connected clients": many_clients,
    "three replicas": three_replicas,
    "TLS": tls,
    "access control": access_control,
}


async def sends(producer: Producer, bodies: Bodies, seconds: float) -> int:
    """Messages that 64 tasks sent in that time, each waiting for one answer at a time."""
    stop_at, sent = time.perf_counter() + seconds, 0

    async def one_after_another() -> None:
        nonlocal sent
        while time.perf_counter() < stop_at:
            await producer.send(bodies.take(1)[0])
            sent += 1

    await asyncio.gather(*(one_after_another() for _ in range(TASKS)))
    return sent


async def bulk(producer: Producer, bodies: Bodies, seconds: float) -> int:
    """Messages that `send_many` sent in that time."""
    stop_at, sent = time.perf_counter() + seconds, 0
    while time.perf_counter() < stop_at:
        await producer.send_many(bodies.take(CHUNK_MESSAGES))
        sent += CHUNK_MESSAGES
    await producer.flush()
    return sent


LOADS: dict[str, Callable[[Producer, Bodies, float], Awaitable[int]]] = {"send": sends, "send_many": bulk}


async def compared(surrounding: Surrounding, rounds: int, seconds: float, body_bytes: int) -> Figures:
    """Rate and processor time of each load, of both clusters."""
    bodies = Bodies(body_bytes)
    taken: dict[str, dict[str, list[tuple[float, float]]]] = {load: {} for load in LOADS}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ortoo-bench-")))
        targets = {}
        for name, opened in (("plain", plain), ("surrounded", surrounding)):
            (folder / name).mkdir()
            target = await stack.enter_async_context(opened(folder / name))
            mq = await stack.enter_async_context(target.connected())
            await mq.admin.ensure_topic(TOPIC, queue_count=QUEUES)
            targets[name] = target, await stack.enter_async_context(mq.producer(TOPIC))
        for number in range(rounds + 1):
            for load, run in LOADS.items():
                for name, (target, producer) in targets.items():
                    before_s, began = target.used_s(), time.perf_counter()
                    sent = await run(producer, bodies, seconds)
                    figures = sent / (time.perf_counter() - began), (target.used_s() - before_s) / sent * 1e6
                    if number:  # the first round warms both up
                        taken[load].setdefault(name, []).append(figures)
    return {load: _figures(**both) for load, both in taken.items()}


def _figures(plain: list[tuple[float, float]], surrounded: list[tuple[float, float]]) -> Figures:
    pairs = list(zip(plain, surrounded, strict=True))
    return {
        "plain messages_per_s": round(statistics.median(rate for rate, _ in plain)),
        "messages_per_s": round(statistics.median(rate for rate, _ in surrounded)),
        "plain cpu_us": round(statistics.median(us for _, us in plain), 2),
        "cpu_us": round(statistics.median(us for _, us in surrounded), 2),
        "rate": ratio(statistics.median(other[0] / one[0] for one, other in pairs), 1.0),
        "processor time": ratio(statistics.median(one[1] / other[1] for one, other in pairs), 1.0),
    }


async def measure(options: argparse.Namespace) -> Figures:
    """Each surrounding beside the plain cluster."""
    chosen = options.only.split(";") if options.only else list(SURROUNDINGS)
    figures = {}
    for name in chosen:
        figures[name] = await compared(SURROUNDINGS[name], options.rounds, options.seconds, options.body_bytes)
    return {
        "load_average_after": round(os.getloadavg()[0], 2),
        "surroundings": figures,
        "baselines": {"a plain cluster": "the same loads in the same rounds"},
        "ratios": {
            f"{name}: {load}, {kind}": one[kind]
            for name, loads in figures.items()
            for load, one in loads.items()
            for kind in ("rate", "processor time")
        },
    }


if __name__ == "__main__":
    main("surroundings", METHOD, measure, only="", rounds=5, seconds=2.0, body_bytes=256)
