"""A small disk filled repeatedly under load: an enode process on a tmpfs with senders that never stop.

python -m ortoo.verification.store.full_disk --megabytes 64 --rounds 20

In each round the disk is full when every sender is refused. Then the process must live, no refused batch be stored, the
first and last message of each queue be readable, and commits succeed. The last commit lets retention delete the
consumed segments, and a sender must be accepted within 5 seconds. At the end the process is killed and started again,
and everything acknowledged must still be counted.

Mounting needs permission. Without it nothing is checked, stderr reports that, and the exit code is 77.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.records.batch import encode
from ortoo.enode.log.settings import StoreSettings
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import failure_pb2
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub
from ortoo.verification.servers.lone_enode import NO_NAME_SERVER, append_request, open_single_enode, topic
from ortoo.verification.servers.processes import RoleProcess

TOPIC = 1
QUEUES = 8
GROUP = "readers"
COMMITS = 50
RESUME_S_MAX = 5.0
FULL_S_MAX = 60.0
RETRY_S = 0.02
SKIPPED = 77
BATCH = encode([b"m" * 1000] * 60, now_ms=1)
SETTINGS = {
    "SEGMENT_BYTES": 4 << 20,
    "HEADROOM_BYTES": 4 << 20,
    "RECENT_BYTES": 8 << 20,
    "RETENTION_AGE_MS": 0,
    "RETENTION_BYTES": 8 << 20,
    "RETENTION_REQUIRES_ACKNOWLEDGEMENT": True,
    "RETENTION_INTERVAL_MS": 200,
    "DISK_CHECK_INTERVAL_MS": 200,
}


class MountNotAllowed(Exception):
    """Mounting a file system is not permitted."""


class FullDiskViolation(Exception):
    """A promise is broken."""


@dataclass(slots=True)
class FullDiskReport:
    """The counts of a run."""

    rounds: int = 0
    acknowledged: int = 0
    """Acknowledged batches."""
    refused: int = 0
    """Sends refused because the disk was full."""
    longest_resume_s: float = 0.0


@dataclass(slots=True)
class SenderLoad:
    """Senders that never stop, one for each queue."""

    report: FullDiskReport
    ends: list[int] = field(default_factory=lambda: [0] * QUEUES)
    """The end of each queue, by the acknowledgements."""
    is_refused: list[bool] = field(default_factory=lambda: [False] * QUEUES)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, stub: EnodeServiceStub, queue_id: int) -> None:
        """Send batch after batch, and repeat a refused one. Errors: Broken."""
        clock = SystemClock()
        call = stub.Append()
        while True:
            await call.write(append_request(0, TOPIC, queue_id, BATCH))
            answer = await call.read()
            assert isinstance(answer, pb.AppendResponse)
            self.is_refused[queue_id] = answer.HasField("failure")
            self.changed.set()
            if not answer.HasField("failure"):
                if answer.first_offset != self.ends[queue_id]:
                    raise FullDiskViolation(f"queue {queue_id}: {answer.first_offset} instead of {self.ends[queue_id]}")
                self.ends[queue_id] += BATCH.count
                self.report.acknowledged += 1
            elif answer.failure.kind == failure_pb2.FAILURE_KIND_OVERLOADED:
                self.report.refused += 1
                await clock.sleep(RETRY_S)
            else:
                raise FullDiskViolation(f"a full disk is answered with {answer.failure}")

    async def until(self, *, refused: bool, within_s: float) -> float:
        """Wait until every sender is refused, or until one is not; the time it took. Errors: Broken."""
        clock = SystemClock()
        began_s = clock.monotonic_s()
        try:
            async with asyncio.timeout(within_s):
                while not (all(self.is_refused) if refused else not all(self.is_refused)):
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            what = "no sender was refused" if refused else "no sender was accepted again"
            raise FullDiskViolation(f"{what} within {within_s} s") from None
        return clock.monotonic_s() - began_s


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[None]:
    """A tmpfs of this size at `folder`. Errors: MountNotAllowed."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        raise MountNotAllowed(mounted.stderr.strip())
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


async def fill(rounds: int, size_bytes: int, folder: Path) -> FullDiskReport:
    """Fill the disk `rounds` times. Errors: MountNotAllowed, Broken."""
    report = FullDiskReport()
    enode = RoleProcess(
        "enode",
        folder / "enode",
        {"NAMESRV_ADDRESS": NO_NAME_SERVER, **{f"STORE_{name}": value for name, value in SETTINGS.items()}},
    )
    with small_disk(enode.data, size_bytes):
        store = StoreSettings(segment_bytes=SETTINGS["SEGMENT_BYTES"], headroom_bytes=SETTINGS["HEADROOM_BYTES"])
        async with open_single_enode(enode.data, topic(TOPIC, queues=QUEUES), store=store):
            pass
        try:
            await enode.start()
            async with _loaded(enode, report) as (load, stub):
                await _commit(stub, [0] * QUEUES)
                for _ in range(rounds):
                    await _round(enode, load, stub)
                await load.until(refused=True, within_s=FULL_S_MAX)
            await enode.kill()
            await enode.start()
            async with Channels() as channels:
                await _check_ends(EnodeServiceStub(channels.channel_to(enode.address)), load)
        finally:
            await enode.kill()
    return report


@asynccontextmanager
async def _loaded(enode: RoleProcess, report: FullDiskReport) -> AsyncIterator[tuple[SenderLoad, EnodeServiceStub]]:
    load = SenderLoad(report)
    async with Channels() as channels, Background("load") as background:
        stub = EnodeServiceStub(channels.channel_to(enode.address))
        for queue_id in range(QUEUES):
            background.spawn(f"send {queue_id}", load.send(stub, queue_id))
        yield load, stub


async def _round(enode: RoleProcess, load: SenderLoad, stub: EnodeServiceStub) -> None:
    """Wait for a full disk, check everything, make room."""
    is_checked = False
    while not is_checked:
        await load.until(refused=True, within_s=FULL_S_MAX)
        if not enode.alive:
            raise FullDiskViolation(f"the enode ended: {enode.log_text()[-2000:]}")
        acknowledged = load.report.acknowledged
        try:
            await _check_while_full(load, stub)
            is_checked = True
        except FullDiskViolation:
            # Retention may still have deleted something: then the disk was not full all the time.
            if acknowledged == load.report.acknowledged:
                raise
    await _commit(stub, load.ends)
    resumed_s = await load.until(refused=False, within_s=RESUME_S_MAX)
    load.report.longest_resume_s = max(load.report.longest_resume_s, round(resumed_s, 3))
    load.report.rounds += 1


async def _check_while_full(load: SenderLoad, stub: EnodeServiceStub) -> None:
    """Check that nothing refused is stored, and that reads and commits succeed. Errors: Broken."""
    await _commit(stub, await _check_ends(stub, load))  # retention may still delete what the last commit passed
    begins = await _check_ends(stub, load)
    await _read_some(stub, begins, load.ends)
    for _ in range(COMMITS):
        await _commit(stub, begins)
    if await _check_ends(stub, load) != begins:
        raise FullDiskViolation("segments were deleted that the group has not passed")


async def _check_ends(stub: EnodeServiceStub, load: SenderLoad) -> list[int]:
    """Each queue must end with the last acknowledged batch; returns where they begin. Errors: Broken."""
    answer = await stub.DescribeQueues(pb.DescribeQueuesRequest(topic_id=TOPIC))
    ends = [queue.end_offset for queue in answer.queues]
    if ends != load.ends:
        raise FullDiskViolation(f"the queues end at {ends}; acknowledged were {load.ends}")
    return [queue.begin_offset for queue in answer.queues]


async def _read_some(stub: EnodeServiceStub, begins: Sequence[int], ends: Sequence[int]) -> None:
    """Read the first and the last message of each queue. Errors: Broken."""
    call = stub.FetchBatches()
    for queue_id in range(QUEUES):
        for offset in (begins[queue_id], ends[queue_id] - 1):
            await call.write(pb.FetchBatchesRequest(topic_id=TOPIC, queue_id=queue_id, from_offset=offset, bytes_max=1))
            answer = await call.read()
            assert isinstance(answer, pb.FetchBatchesResponse)
            if [one.batch.records for one in answer.batches] != [BATCH.records]:
                raise FullDiskViolation(f"offset {offset} of queue {queue_id} cannot be read: {answer.failure}")
    call.cancel()


async def _commit(stub: EnodeServiceStub, offsets: Sequence[int]) -> None:
    rows = [pb.QueueOffset(queue_id=queue_id, offset=offset) for queue_id, offset in enumerate(offsets)]
    await stub.CommitOffsets(pb.CommitOffsetsRequest(topic_id=TOPIC, group=GROUP, offsets=rows))
    found = await stub.QueryOffsets(pb.QueryOffsetsRequest(topic_id=TOPIC, group=GROUP))
    if [row.offset for row in found.offsets] != list(offsets):
        raise FullDiskViolation(f"committed were {offsets}, found {found.offsets}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; 1 when a promise is broken, 77 when no disk can be mounted."""
    parser = argparse.ArgumentParser(
        prog="python -m ortoo.verification.store.full_disk", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--megabytes", type=int, default=64, help="size of the disk")
    parser.add_argument("--rounds", type=int, default=20, help="number of rounds")
    chosen: Any = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ortoo-full-") as folder:
        try:
            report = asyncio.run(fill(chosen.rounds, chosen.megabytes << 20, Path(folder)))
        except MountNotAllowed as error:
            sys.stderr.write(f"NOT CHECKED, because a full disk needs the right to mount a tmpfs: {error}\n")
            return SKIPPED
        except FullDiskViolation as error:
            sys.stdout.write(f"BROKEN {error}\n")
            return 1
    sys.stdout.write(f"{report}: the process lived, refused sends stored nothing, reads and commits succeeded\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
