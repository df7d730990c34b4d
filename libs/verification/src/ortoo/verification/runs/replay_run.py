"""A replay of many dead letters, killed half-way and called again: each letter is sent exactly once.

    python -m ortoo.verification.runs.replay_run --letters 100000

Twice: once the command is killed, once the enode. A dry run comes first; it must not change a byte of the store.
"""

import argparse
import asyncio
import hashlib
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from ortoo.client import Client, PopSettings, connect
from ortoo.common.logs.logger import configure
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers import command
from ortoo.verification.servers.processes import ProcessCluster, process_cluster

PARKED_AT_ONCE = 1_024
WORKERS = 4
COMMAND_TIMEOUT_S = 600.0
QUIET_S = 0.3
"""The store is idle when its files stay the same for this long."""
DRY_RUNS_MAX = 5
WHOLE_S = 8
"""The duration of a replay that is killed half-way: long enough to kill it after half is reported."""


class ReplayRun:
    """One run."""

    def __init__(self, folder: Path, *, letters: int) -> None:
        """Use `folder` for all data."""
        self._folder, self._letters = folder, letters
        self._clock = SystemClock()

    async def run(self) -> dict[str, Any]:
        """Run it and return the figures."""
        store = {"STORE_HEADROOM_BYTES": 0, "STORE_SEGMENT_BYTES": 64 << 20}
        async with process_cluster(self._folder, environ={"enode": store}) as cluster, connect(cluster.address) as mq:
            return {
                "letters": self._letters,
                "command killed": await self._killed(cluster, mq, "command"),
                "enode killed": await self._killed(cluster, mq, "enode"),
            }

    async def _killed(self, cluster: ProcessCluster, mq: Client, victim: str) -> dict[str, Any]:
        """Park, look, replay until half is done, kill, replay again; the fate of each letter."""
        topic, group = f"jobs-{victim}", f"workers-{victim}"
        await self._park(mq, topic, group)
        dry = await self._dry_run(cluster, group)
        sent_before = await self._replay_half(cluster, group, victim)
        rest = await self._replay(cluster.address, group)
        copies = await self._copies(mq, f"%RETRY%{group}")
        return {
            **dry,
            "sent_before_the_kill_at_least": sent_before,
            "sent_afterwards": rest["replayed_messages"],
            "found_sent_already": rest["skipped_messages"],
            "lost": sum(str(number).encode() not in copies for number in range(self._letters)),
            "sent_twice": sum(count > 1 for count in copies.values()),
        }

    async def _park(self, mq: Client, topic: str, group: str) -> None:
        await mq.admin.create_topic(topic, queue_count=2)
        async with mq.producer(topic) as producer:
            for start in range(0, self._letters, PARKED_AT_ONCE):
                end = min(start + PARKED_AT_ONCE, self._letters)
                await producer.send_many([str(number).encode() for number in range(start, end)])
            await producer.flush()
        left = self._letters
        settings = PopSettings(messages_max=PARKED_AT_ONCE)
        async with mq.pop_consumer(group, topic, settings=settings) as consumer:

            async def work() -> None:
                nonlocal left
                while left > 0:
                    for lease in {message.lease for message in await consumer.pop(wait_ms=200)}:
                        offsets = sorted(lease.open_offsets)
                        await consumer.nack(
                            lease, offsets, delay_ms=0, count_attempt=True, error="it was not right", park=True
                        )
                        left -= len(offsets)

            await asyncio.gather(*[work() for _ in range(WORKERS)])

    async def _dry_run(self, cluster: ProcessCluster, group: str) -> dict[str, Any]:
        # An enode sometimes writes on its own, such as a checkpoint. A dry run that wrote would do so each time.
        told: dict[str, int] = {}
        changed = True
        for _ in range(DRY_RUNS_MAX):
            before = await self._idle_hash(cluster)
            told = await self._replay(cluster.address, group, "--dry-run")
            changed = await self._idle_hash(cluster) != before
            if not changed:
                break
        return {"dry_run_finds": told["replayed_messages"], "dry_run_changed_the_store": changed}

    async def _idle_hash(self, cluster: ProcessCluster) -> str:
        """A hash of all bytes of the enode's files, once they no longer change."""
        known = ""
        while (found := await asyncio.to_thread(_hash_of, cluster.enode.data)) != known:
            known = found
            await self._clock.sleep(QUIET_S)
        return known

    async def _replay_half(self, cluster: ProcessCluster, group: str, victim: str) -> int:
        """Run the command until it reports half as sent, kill, and leave everything but the command running."""
        process = await asyncio.create_subprocess_exec(
            *("ortoo", "dlq", "replay", group, "--json", "--rate", str(self._letters // WHOLE_S)),
            env=command.environ(cluster.address) | {"PYTHONUNBUFFERED": "1"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        sent = 0
        try:
            while sent < self._letters // 2 and (line := await process.stdout.readline()):
                sent = int(json.loads(line)["replayed_messages"])
            assert process.returncode is None, "the command ended before half was sent"
            if victim == "enode":
                await cluster.enode.kill()
                await process.stdout.read()
                assert await process.wait() != 0, "the command did not say that it was broken off"
                await cluster.enode.start()
                await cluster.wait_until_alive()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return sent

    async def _replay(self, address: str, group: str, *words: str) -> dict[str, int]:
        """The final report of a replay, run to its end."""
        words = ("ortoo", "dlq", "replay", group, "--json", *words)
        async with asyncio.timeout(COMMAND_TIMEOUT_S):
            while (outcome := await command.run(words, address, timeout_s=COMMAND_TIMEOUT_S)).exit_code:
                assert "cannot be reached now" in outcome.stderr, outcome.stderr  # the enode has just started again
                await self._clock.sleep(0.2)
        return {name: int(value) for name, value in json.loads(outcome.stdout.splitlines()[-1]).items()}

    async def _copies(self, mq: Client, topic: str) -> Counter[bytes]:
        """The number of copies of each body in a topic."""
        copies: Counter[bytes] = Counter()
        for item in (await mq.admin.describe_topic(topic)).queues:
            async for batch in mq.fetch(item.queue, item.begin_offset):
                copies.update(batch.bodies())
        return copies


def faults(seen: dict[str, Any]) -> dict[str, Any]:
    """The entries of a run's report that break the promise."""
    return {
        f"{case}: {name}": value
        for case in ("command killed", "enode killed")
        for name, value in seen[case].items()
        if name in ("lost", "sent_twice", "dry_run_changed_the_store") and value
    }


def _hash_of(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def main() -> None:
    """Run it from the command line and print the figures as JSON; exit code 1 when a letter was lost or duplicated."""
    parser = argparse.ArgumentParser(
        prog="python -m ortoo.verification.runs.replay_run", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--letters", type=int, default=100_000)
    options = parser.parse_args()
    configure(level="error")
    with tempfile.TemporaryDirectory() as folder:
        seen = asyncio.run(ReplayRun(Path(folder), letters=options.letters).run())
    sys.stdout.write(json.dumps(seen) + "\n")
    sys.exit(bool(faults(seen)))


if __name__ == "__main__":
    main()
