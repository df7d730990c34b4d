"""A snode of two workers, as processes: one port, one group, one set of metrics. Any process may die."""

import asyncio
import contextlib
import dataclasses
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from ortoo.client import Client, Consumer, ConsumerSettings, Message, PopSettings, Queue, connect
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import findings_pb2, namesrv_pb2, namesrv_pb2_grpc
from ortoo.v1.findings_pb2_grpc import FindingsServiceStub
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.processes import DidNotStart, ProcessCluster, RoleProcess, process_cluster
from ortoo.verification.servers.scrape import get, scraped
from ortoo.verification.servers.valkey import Valkey, valkey
from tests.e2e.consumer_cluster import Books, members, settled, until
from tests.e2e.test_doctor import looked

NAMES = ["snode-0.1", "snode-0.2"]
CLOCK = SystemClock()
PATIENCE_S = 120.0
"""Timeout for steps that take a second; not a guarantee, because a busy machine starves processes."""
pytestmark = pytest.mark.timeout(300)


@dataclasses.dataclass
class Workers:
    """A cluster whose snode has two workers."""

    cluster: ProcessCluster
    snode: RoleProcess
    store: Valkey
    metrics: str

    async def own_addresses(self) -> Mapping[str, str]:
        """Name of each worker to its own address, as the name server announces it to other processes."""
        found: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE_S), Channels() as channels:
            stub = namesrv_pb2_grpc.NameServiceStub(channels.channel_to(self.cluster.namesrv.address))
            async for news in stub.WatchRoutes(namesrv_pb2.WatchRoutesRequest()):
                found.update((one.name, one.cluster_address) for one in news.snodes if one.alive)
                if sorted(found) == NAMES:
                    return found
        raise AssertionError(found)

    async def answering(self) -> str:
        """The worker that accepts a new connection to the shared port."""
        async with Channels() as channels:
            stub = FindingsServiceStub(channels.channel_to(self.snode.address))
            answer = await stub.ListFindings(findings_pb2.ListFindingsRequest(local_only=True), timeout=10)
        return str(answer.processes[0].name)

    async def process_ids(self) -> dict[str, int]:
        """The process ids of the workers, by number: those for which the parent's metrics have a start time."""
        children = Path(f"/proc/{self.snode.pid}/task/{self.snode.pid}/children")
        return {str(number): int(word) for number, word in enumerate(children.read_text().split(), 1)}


@contextlib.asynccontextmanager
async def two_workers(folder: Path, *, with_metrics: bool = True, drain_delay_s: float = 0.0) -> AsyncIterator[Workers]:
    """Start everything; leave nothing running."""
    metrics = f"127.0.0.1:{free_ports(1)[0]}" if with_metrics else ""
    async with valkey(folder / "valkey") as store, process_cluster(folder, snodes=0) as cluster:
        settings = {"NAME": "snode-0", "WORKERS": 2, "REDIS_URL": store.url, "METRICS_ADDRESS": metrics}
        settings |= {"DRAIN_DELAY_S": drain_delay_s}
        snode = RoleProcess("snode", folder / "snode-0", {**settings, "NAMESRV_ADDRESS": cluster.namesrv.address})
        await snode.start()
        try:
            yield Workers(cluster, snode, store, metrics)
        finally:
            await snode.stop()


async def send(mq: Client, topic: str, count: int, group: str | None = None) -> None:
    """Send messages with the bodies 0, 1, 2 and so on, a few to each queue in turn."""
    messages = [Message(b"%d" % number, message_group=group) for number in range(count)]
    async with mq.producer(topic) as producer:
        for begin in range(0, count, 25):
            await (await producer.send_many(messages[begin : begin + 25]))


def everything(folder: Path, client_id: str) -> ConsumerSettings:
    """A consumer that receives all messages, independently of others."""
    return ConsumerSettings(broadcast=True, from_beginning=True, offsets_folder=folder, client_id=client_id)


async def received(consumer: Consumer, count: int) -> set[tuple[Queue, int]]:
    """The first `count` messages that a consumer gets: queue and offset."""
    found: set[tuple[Queue, int]] = set()
    async for batch in consumer.batches():
        found.update((batch.queue, offset) for offset in batch.offsets)
        if len(found) >= count:
            break
    return found


async def done_with(mq: Client, group: str, topic: str) -> None:
    """Wait until the group has acknowledged all messages."""
    async with asyncio.timeout(PATIENCE_S):
        while (await mq.admin.describe_lag(group, topic)).lag_messages:
            await CLOCK.sleep(0.05)


async def test_two_workers_are_one_snode(tmp_path: Path) -> None:
    """Both accept connections; a group over both gets each message once. Message groups and metrics are shared."""
    async with asyncio.timeout(280), two_workers(tmp_path) as running, connect(running.snode.address) as mq:
        own = await running.own_addresses()
        answered: set[str] = set()
        for _ in range(64):  # each connection goes to a worker by a hash of its ports: 64 do not all go to one
            answered.add(await running.answering())
            if len(answered) == 2:
                break
        assert sorted(answered) == NAMES

        await mq.admin.create_topic("t", queue_count=4)
        await send(mq, "t", 500)
        books = Books()
        async with (
            members([own[NAMES[0]]], "g", "t", 1, books, prefix="a") as first,
            members([own[NAMES[1]]], "g", "t", 1, books, prefix="b") as second,
        ):
            everybody = [*first, *second]
            await until(lambda: settled(everybody, 4) and all(one.consumer.queues for one in everybody), PATIENCE_S)
            await until(lambda: len(books.received) == 500, PATIENCE_S)
            await done_with(mq, "g", "t")
            # Messages in flight to one worker when a queue moved to the other were pushed twice, and maybe handled
            # twice.
            pushed_before = sum((await scraped(running.metrics))["rocketmq_messages_out_total"].values())
            received_before = sum(books.received.values())
            assert pushed_before >= received_before
            await send(mq, "t", 500)
            await until(lambda: len(books.received) == 1000, PATIENCE_S)
            assert {(one.name, one.alive) for one in (await mq.admin.describe_cluster()).snodes} == {
                (name, True) for name in NAMES
            }
            told = await scraped(running.metrics)
            pushed = told["rocketmq_messages_out_total"]
            assert sum(pushed.values()) - pushed_before == sum(books.received.values()) - received_before
            assert {dict(labels)["worker"] for labels in pushed} == {"1", "2"}
            assert sum(told["rocketmq_consumer_connections"].values()) == 2
            assert len(told["ortoo_build_info"]) == 2
            assert {dict(labels)["worker"] for labels in told["process_cpu_seconds_total"]} == {"1", "2", "parent"}
        await done_with(mq, "g", "t")

        await mq.admin.create_topic("steps", queue_count=1, message_type="fifo")
        await send(mq, "steps", 2, group="order-1")
        in_order = PopSettings(in_order=True)
        async with (
            connect(own[NAMES[0]]) as here,
            connect(own[NAMES[1]]) as there,
            here.consumer("everybody", "t", everything(tmp_path, "a")) as one_of_all,
            there.consumer("everybody", "t", everything(tmp_path, "b")) as other_of_all,
            here.pop_consumer("orders", "steps", settings=in_order) as one,
            there.pop_consumer("orders", "steps", settings=in_order) as other,
        ):
            held = await one.pop(1, wait_ms=5_000)
            assert [it.body for it in held] == [b"0"]
            assert await other.pop(1, wait_ms=100) == []
            await held[0].ack()
            assert [it.body for it in await other.pop(1, wait_ms=5_000)] == [b"1"]
            assert await received(one_of_all, 1000) == await received(other_of_all, 1000) == books.received.keys()

        os.kill(running.snode.pid, signal.SIGHUP)
        await until(lambda: running.snode.log_text().count("settings_reloaded") == 2, PATIENCE_S)
        assert (await looked(running.snode.address, patience=10.0))[0] == []
        for address in own.values():
            async with connect(address) as worker:
                all_snodes = await worker.admin.operations.list_settings("snode")
                assert [(one.name, one.address) for one in all_snodes] == sorted(own.items())
                at_the_port = await worker.admin.operations.list_settings("snode", process=running.snode.address)
                assert [one.name for one in at_the_port] == NAMES


async def test_a_worker_that_dies_loses_nothing_and_comes_back(tmp_path: Path) -> None:
    """Consumers of the killed one move to the other; the parent reports it, is not ready, and then is again."""
    async with asyncio.timeout(280), two_workers(tmp_path) as running:
        books = Books()
        async with connect(running.snode.address) as mq:
            await mq.admin.create_topic("t", queue_count=4)
            async with members([running.snode.address], "g", "t", 6, books) as found:
                await until(lambda: settled(found, 4), PATIENCE_S)
                await send(mq, "t", 300)
                before = (await scraped(running.metrics))["ortoo_worker_starts_total"]
                assert list(before.values()) == [1, 1]
                first = min((await running.process_ids()).values())
                running.cluster.namesrv.freeze()  # so that the next worker is not ready before the endpoint is read
                os.kill(first, signal.SIGKILL)
                await running.snode.wait_for_log("worker_restarted")
                assert (await get(running.metrics, "/readyz")).status == 503
                running.cluster.namesrv.thaw()
                await send(mq, "t", 300)
                await until(lambda: len(books.received) == 600, PATIENCE_S)
                async with asyncio.timeout(PATIENCE_S):
                    while (await get(running.metrics, "/readyz")).status != 200:
                        await CLOCK.sleep(0.05)
                assert sorted((await scraped(running.metrics))["ortoo_worker_starts_total"].values()) == [1, 2]
        assert sorted(await running.own_addresses()) == NAMES


async def test_a_stop_ends_all_workers_and_the_parent_last(tmp_path: Path) -> None:
    """A consumer is redirected, and every process ends on its own; workers without a parent end too."""
    async with asyncio.timeout(280), two_workers(tmp_path, with_metrics=False) as running:
        children = await running.process_ids()
        async with connect(running.snode.address) as mq:
            await mq.admin.create_topic("t")
            async with mq.consumer("g", "t", ConsumerSettings(from_beginning=True)) as consumer:
                await until(lambda: bool(consumer.queues), PATIENCE_S)
                assert await running.snode.stop() == 0
                said = [line for line in running.snode.log_text().splitlines() if "shutdown_complete" in line]
                assert len(said) == 3
                assert not any(Path(f"/proc/{one}").exists() for one in children.values())
                await running.snode.start()  # the consumer moves there, and leaves gracefully
        children = await running.process_ids()
        await running.snode.kill()
        await until(lambda: not any(Path(f"/proc/{one}/exe").exists() for one in children.values()), PATIENCE_S)


async def test_who_starts_after_a_parent_was_killed_has_the_port_soon(tmp_path: Path) -> None:
    """Workers without a parent stop without grace; meanwhile the next parent is refused."""
    async with asyncio.timeout(280), two_workers(tmp_path, drain_delay_s=600.0) as running:
        children = await running.process_ids()
        await running.snode.kill()
        await until(lambda: not any(Path(f"/proc/{one}/exe").exists() for one in children.values()), PATIENCE_S)
        await running.snode.start()
        children = await running.process_ids()
        os.kill(running.snode.pid, signal.SIGTERM)
        await until(lambda: running.snode.log_text().count('"shutdown_started"') == 5, PATIENCE_S)
        await running.snode.kill()
        await until(lambda: not any(Path(f"/proc/{one}/exe").exists() for one in children.values()), PATIENCE_S)


async def test_what_cannot_start_says_so(tmp_path: Path) -> None:
    """A second snode on the port is refused, with workers or without; a parent ends with the code of its workers."""
    async with asyncio.timeout(280), two_workers(tmp_path) as running:
        same = {**running.snode.environ, "LISTEN_ADDRESS": running.snode.address, "METRICS_ADDRESS": ""}
        wrong = {**same, "LISTEN_ADDRESS": "127.0.0.1:0", "ACCESS_FILE": tmp_path / "none", "INSECURE": True}
        rejected = [
            ({**same, "NAME": "snode-1"}, 255, "cannot listen on"),
            ({**same, "NAME": "snode-1", "WORKERS": 1}, 255, "cannot listen on"),
            ({**wrong, "NAME": "snode-2"}, 253, "none of 2 workers could start"),
        ]

        async def refused(number: int, environ: Mapping[str, object], exit_code: int, text: str) -> None:
            with pytest.raises(DidNotStart, match=text) as error:
                await RoleProcess("snode", tmp_path / f"refused-{number}", environ).start()
            assert error.value.exit_code == exit_code

        await asyncio.gather(*(refused(number, *one) for number, one in enumerate(rejected)))
