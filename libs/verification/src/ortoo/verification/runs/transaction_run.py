"""Producers of transactions killed at many points between half message and verdict: each ends or is parked.

python -m ortoo.verification.runs.transaction_run --kills 300
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import sys
import tempfile
from collections import Counter
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

from ortoo.client import Client, OrtooError, Queue, connect
from ortoo.common.logs.logger import configure
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.verification.runs import transaction_producer
from ortoo.verification.runs.transaction_producer import PER_PRODUCER, TOPIC, Ledger, is_never_known
from ortoo.verification.servers.processes import SMALL_STORE, ProcessCluster, process_cluster

AT_ONCE = 3
LIFE_MS = 600
"""A producer is killed within this time after its first transaction began."""
CHECKS: dict[str, object] = {
    "TRANSACTION_CHECK_AFTER_MS": 1_000,
    "TRANSACTION_CHECK_INTERVAL_MS": 400,
    "TRANSACTION_CHECKS_MAX": 5,
}
END_TIMEOUT_S = 120.0


class TransactionRun:
    """One run."""

    def __init__(self, folder: Path, *, kills: int, enode_kills: int = 1, seed: int = 0) -> None:
        """Use `folder` for all data."""
        self._folder, self._kills, self._enode_kills = folder, kills, enode_kills
        self._chance, self._clock = Randomness(seed), SystemClock()
        self._ledger_path = folder / "ledger"
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([transaction_producer.__name__])
        self._processes: list[ForkServerProcess] = []
        self._identity = 0

    async def run(self) -> dict[str, Any]:
        """Run it and return the figures."""
        ledger = Ledger(self._ledger_path)
        try:
            async with (
                process_cluster(self._folder, environ={"enode": {**SMALL_STORE, **CHECKS}}) as cluster,
                connect(cluster.address) as mq,
                Background("run") as background,
            ):
                await mq.admin.create_topic(TOPIC, queue_count=2)
                seen: Counter[int] = Counter()
                for item in (await mq.admin.describe_topic(TOPIC)).queues:
                    background.spawn("read", self._read(mq, item.queue, seen))
                await self._kill_them(ledger, cluster)
                self._start(cluster.address, count=0)  # a producer has to be there to answer checks
                parked = await self._until_ended(mq)
                await self._clock.sleep(1.0)
        finally:
            for process in self._processes:
                process.kill()
        return self._report(ledger.read(), seen, parked)

    async def _read(self, mq: Client, queue: Queue, seen: Counter[int]) -> None:
        at = 0
        while True:
            with contextlib.suppress(OrtooError):  # the enode is being killed
                async for batch in mq.fetch(queue, at, follow=True):
                    seen.update(int(body) for body in batch.bodies())
                    at = batch.next_offset

    async def _kill_them(self, ledger: Ledger, cluster: ProcessCluster) -> None:
        """Keep some producers running; kill each one a while after its first transaction."""
        left, running = self._kills, 0
        enode_at = {self._kills * (number + 1) // (self._enode_kills + 1) for number in range(self._enode_kills)}
        async with asyncio.TaskGroup() as group:
            slots = asyncio.Semaphore(AT_ONCE)
            while left:
                await slots.acquire()
                running += 1
                if left in enode_at:
                    await cluster.enode.restart()
                group.create_task(self._live_and_die(ledger, cluster.address, slots))
                left -= 1

    async def _live_and_die(self, ledger: Ledger, address: str, slots: asyncio.Semaphore) -> None:
        identity, process = self._start(address, count=PER_PRODUCER)
        async with asyncio.timeout(END_TIMEOUT_S):
            while not any(number // PER_PRODUCER == identity for number in ledger.read()["begun"]):
                await self._clock.sleep(0.01)
        await self._clock.sleep(self._chance.below(LIFE_MS) / 1000)
        process.kill()
        await asyncio.to_thread(process.join)
        ledger.write("dead", identity)
        slots.release()

    def _start(self, address: str, *, count: int) -> tuple[int, ForkServerProcess]:
        self._identity += 1
        process = self._context.Process(
            target=transaction_producer.run,
            args=(address, str(self._ledger_path), self._identity, count),
            daemon=True,
        )
        process.start()
        self._processes.append(process)
        return self._identity, process

    async def _until_ended(self, mq: Client) -> int:
        """Wait until every open transaction is parked; returns their number."""
        async with asyncio.timeout(END_TIMEOUT_S):
            while True:
                found = await mq.admin.list_transactions(limit=10_000)
                if all(one.parked for one in found):
                    return len(found)
                await self._clock.sleep(0.2)

    def _report(self, said: dict[str, set[int]], seen: Counter[int], parked: int) -> dict[str, Any]:
        undecided = said["begun"] - said["commit"] - said["roll_back"]
        unseen_commits = said["commit"] - seen.keys()
        return {
            "producers_killed": self._kills,
            "enode_kills": self._enode_kills,
            "begun": len(said["begun"]),
            "committed": len(said["commit"] & seen.keys()),
            "rolled_back": len(said["roll_back"]),
            "parked": parked,
            "undecided": len(undecided),
            "rolled_back_but_seen": len(said["roll_back"] & seen.keys()),
            "seen_without_commit": len(seen.keys() - said["commit"]),
            "seen_twice": sum(count > 1 for count in seen.values()),
            "undecided_that_somebody_knew": sum(not is_never_known(number) for number in undecided),
            "neither_ended_nor_parked": max(0, len(unseen_commits) + len(undecided) - parked),
        }


def main() -> None:
    """Run it from the command line and print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m ortoo.verification.runs.transaction_run")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--enode-kills", type=int, default=3)
    options = parser.parse_args()
    configure(level="error")
    with tempfile.TemporaryDirectory() as folder:
        run = TransactionRun(Path(folder), kills=options.kills, enode_kills=options.enode_kills)
        sys.stdout.write(json.dumps(asyncio.run(run.run())) + "\n")


if __name__ == "__main__":
    main()
