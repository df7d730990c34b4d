"""The cost of replication: processor time a message, alone and of each replica of an enode of three."""

import argparse
import asyncio
import os
import re
import tempfile
import urllib.request
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from bench.baselines.bare_replica import bare_follower, carried
from bench.percentiles import latency_figures
from bench.processes import running_s
from bench.report import Figures, main, ratio
from bench.stores import repeated_batches
from bench.traffic import produce_for, ticks
from ortoo.cli.demo.role_subprocess import free_addresses
from ortoo.client import Client, Producer, connect
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.channels import Channels
from ortoo.v1 import enode_pb2, record_pb2
from ortoo.verification.servers.processes import RoleProcess, process_cluster
from tests.e2e.replica_cluster import leading, replica_cluster, whole

METHOD = (
    "an enode alone and an enode of three replicas, both running all the time and loaded in turn. Bodies of 256 "
    "bytes, 8 queues, acknowledged when a majority of disks has them. `bulk`: one producer's `send_many` through a "
    "snode. `direct`: batches sent to the enode without a snode at a steady rate, with the time to their "
    "acknowledgement. Processor microseconds a message of each process, user and system; medians over the rounds. "
    "`messages`: flushes of the leader and messages to its followers. `alone at once`: three enodes alone with a "
    "snode each, bulk, which share nothing but the machine. It shows the cost of sharing the cores. `bare`: processes"
    " that send a mebibyte twice by grpc.aio, and that receive it, write it and sync it, and do nothing else. A "
    "message has as many bytes as in `bulk`"
)
TOPIC, QUEUES, BODY_BYTES = "bench", 8, 256
MIB = 1 << 20
DIRECT_MESSAGES = 400
"""Messages in a batch that is sent to the enode without a snode."""
COUNTED = {"flushes": "ortoo_flushes_total", "shipments": "ortoo_shipments_total", "bytes": "ortoo_shipped_bytes_total"}


@dataclass(slots=True)
class Loaded:
    """One of the two enodes, with its snode and producer."""

    producer: Producer
    topic_id: int
    enode: RoleProcess
    """The enode that receives the messages."""
    processes: dict[str, RoleProcess]
    channels: Channels

    async def measured(self, way: str, seconds: float, rate: float) -> Figures:
        """Load it for `seconds`; the cost of a message in each process."""
        before, counted = self._used_s(), self._counted()
        figures: Figures = {}
        if way == "bulk":
            sent = await produce_for(self.producer, BODY_BYTES, seconds)
            messages, figures["per_s"] = sent.messages, sent.messages_per_s
        else:
            messages = int(seconds * rate) // DIRECT_MESSAGES * DIRECT_MESSAGES
            figures |= await self._direct(messages // DIRECT_MESSAGES, rate / DIRECT_MESSAGES)
        figures["cpu_us"] = {name: (used_s - before[name]) / messages * 1e6 for name, used_s in self._used_s().items()}
        told = {name: count - counted[name] for name, count in self._counted().items()}
        figures["messages_a_flush"] = messages / told["flushes"]
        if told["shipments"]:
            figures["shipments_a_flush"] = told["shipments"] / told["flushes"]
            figures["bytes_a_shipment"] = told["bytes"] / told["shipments"]
        return figures

    async def _direct(self, batches: int, per_s: float) -> Figures:
        make, due_s, took_s = repeated_batches(BODY_BYTES, DIRECT_MESSAGES), dict[int, float](), list[float]()
        refused: list[bool] = []
        loop, call = asyncio.get_running_loop(), bulk_calls.append(self.channels.channel_to(self.enode.address))

        async def hear() -> None:
            while len(took_s) < batches:
                answer = await call.read()
                took_s.append(loop.time() - due_s[answer.request_id])
                refused.append(answer.HasField("failure"))

        hearing = loop.create_task(hear())
        async for _ in ticks(per_s, batches):
            number = len(due_s)
            batch = make(number)
            sealed = record_pb2.SealedBatch(
                records_crc32c=batch.records_crc32c, count=batch.count, body_inflated_bytes=batch.body_inflated_bytes
            )
            due_s[number] = loop.time()
            request = enode_pb2.AppendRequest(
                request_id=number, topic_id=self.topic_id, queue_id=number % QUEUES, batch=sealed
            )
            await call.write(BulkMessage(request, (batch.records,)))
        await hearing
        await call.done_writing()
        return {**latency_figures(took_s), "refused": sum(refused)}

    def _used_s(self) -> dict[str, float]:
        return {name: running_s(one.pid) for name, one in self.processes.items()}

    def _counted(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://{self.enode.environ['METRICS_ADDRESS']}/metrics") as answer:
            text = answer.read().decode()
        found = {name: re.search(rf"^{key} (\S+)$", text, re.MULTILINE) for name, key in COUNTED.items()}
        return {name: float(one[1]) if one else 0.0 for name, one in found.items()}


async def measure(options: argparse.Namespace) -> Figures:
    """Load both enodes in turn, round after round."""
    rounds: dict[str, list[Figures]] = {f"{who} {way}": [] for way in ("bulk", "direct") for who in ("alone", "three")}
    at_once: list[Figures] = []
    bare: list[Figures] = []
    async with AsyncExitStack() as parts:
        folder = Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="ortoo-bench-")))
        both = {"alone": await _alone(parts, folder / "alone"), "three": await _three(parts, folder / "three")}
        alone = [both["alone"], *[await _alone(parts, folder / f"beside-{number}") for number in (1, 2)]]
        followers = [await parts.enter_async_context(bare_follower(folder / f"bare-{number}")) for number in (1, 2)]
        for one in (both["three"], *alone):
            await one.measured("bulk", 1.0, 0.0)
        await _bare(followers, 1.0)
        for _ in range(int(options.rounds)):
            for name, found in rounds.items():
                who, way = name.split()
                found.append(await both[who].measured(way, options.seconds, options.rate))
            at_once.extend(await asyncio.gather(*(one.measured("bulk", options.seconds, 0.0) for one in alone)))
            bare.append(await _bare(followers, options.seconds))
    figures = {name: _medians(found) for name, found in rounds.items()}
    figures["alone at once"] = _medians(at_once)
    ratios: Figures = {way: _ratios(figures, way) for way in ("bulk", "direct")}
    beside = figures["alone at once"]["cpu_us"]["enode"]
    ratios["alone at once to alone"] = ratio(beside, figures["alone bulk"]["cpu_us"]["enode"])
    return {
        "rounds": options.rounds,
        **figures,
        "bare": (floor := _medians(bare)),
        "ratios": ratios | _floor(figures, floor),
    }


async def _bare(followers: Sequence[tuple[str, int]], seconds: float) -> Figures:
    """Processor milliseconds a mebibyte: of this process, which sends it twice, and of each follower that stores it."""
    processes = [os.getpid(), *(process_id for _, process_id in followers)]
    before = [running_s(one) for one in processes]
    mib = await carried([address for address, _ in followers], os.urandom(MIB), seconds) / MIB
    leader, *kept = ((running_s(one) - used_s) / mib * 1e3 for one, used_s in zip(processes, before, strict=True))
    return {"mib_per_s": mib / seconds, "leader_ms": leader, "follower_ms": fmean(kept)}


def _floor(figures: Figures, bare: Figures) -> Figures:
    """The two ratios that transport and disk alone would give."""
    three, alone_us = figures["three bulk"], figures["alone bulk"]["cpu_us"]["enode"]
    followers = len(three["cpu_us"]) - 2
    sent_bytes = three["bytes_a_shipment"] * three["shipments_a_flush"] / three["messages_a_flush"] / followers
    leader_us, follower_us = (bare[name] * 1e3 * sent_bytes / MIB for name in ("leader_ms", "follower_ms"))
    return {
        "bare": {
            "leader to alone": ratio(alone_us + leader_us, alone_us),
            "follower to alone": ratio(follower_us, alone_us),
        }
    }


async def _alone(parts: AsyncExitStack, folder: Path) -> Loaded:
    metrics = {"METRICS_ADDRESS": free_addresses(1)[0]}
    cluster = await parts.enter_async_context(process_cluster(folder, environ={"enode": metrics}))
    mq = await parts.enter_async_context(connect(cluster.address))
    return await _loaded(parts, mq, cluster.enode, {"snode": cluster.snode, "enode": cluster.enode})


async def _three(parts: AsyncExitStack, folder: Path) -> Loaded:
    cluster = await parts.enter_async_context(replica_cluster(folder, enode_environ={}, metrics=True))
    mq = await parts.enter_async_context(connect(cluster.address))
    await whole(mq)
    leader = await leading(cluster, mq)
    followers = [one for one in cluster.enodes if one is not leader]
    named = {f"follower-{number}": one for number, one in enumerate(followers, 1)}
    return await _loaded(parts, mq, leader, {"snode": cluster.snode, "leader": leader, **named})


async def _loaded(parts: AsyncExitStack, mq: Client, enode: RoleProcess, processes: dict[str, RoleProcess]) -> Loaded:
    topic = await mq.admin.create_topic(TOPIC, queue_count=QUEUES)
    producer = await parts.enter_async_context(mq.producer(TOPIC))
    channels = await parts.enter_async_context(Channels())
    return Loaded(producer, topic.topic_id, enode, processes, channels)


def _medians(rounds: Sequence[Any]) -> Any:
    if isinstance(rounds[0], dict):
        return {key: _medians([one[key] for one in rounds]) for key in rounds[0]}
    return float(f"{median(rounds):.4g}")


def _ratios(figures: Figures, way: str) -> Figures:
    three, alone = figures[f"three {way}"]["cpu_us"], figures[f"alone {way}"]["cpu_us"]["enode"]
    follower = fmean(us for name, us in three.items() if name.startswith("follower"))
    return {"leader to alone": ratio(three["leader"], alone), "follower to alone": ratio(follower, alone)}


if __name__ == "__main__":
    main("members", METHOD, measure, seconds=4.0, rounds=3.0, rate=20_000.0)
