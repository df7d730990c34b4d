"""The enode reports by grpc.health.v1 whether it accepts messages."""

import asyncio
import errno
import os
from pathlib import Path

from grpc_health.v1 import health_pb2
from structlog.testing import capture_logs

from ortoo.common.process.clock import SystemClock
from ortoo.common.records.batch import encode
from ortoo.enode import log_events
from ortoo.enode.disk.disk import DiskSpace, RealDisk, RealFile
from ortoo.enode.log.settings import StoreSettings
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import failure_pb2
from ortoo.verification.servers.lone_enode import SingleEnode, append_request, open_single_enode, topic
from tests.integration.lease_giver import lease_giver

TOPIC = 7
BATCH = encode([b"m" * 20_000] * 10, now_ms=1)
STORE = StoreSettings(segment_bytes=1 << 20, headroom_bytes=1 << 20, disk_check_interval_ms=5)
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class TroubledDisk(RealDisk):
    """A disk that can be made full, or made to fail fdatasync."""

    def __init__(self) -> None:
        super().__init__()
        self.free = 1 << 40
        self.sync_fails = False
        self.is_low = False
        """Whether 95 % of the space and 96 % of the inodes are in use."""

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> RealFile:
        """Open a file whose fdatasync fails while the fault is on."""
        disk = self

        class File(RealFile):
            def sync_data(self) -> None:
                """Fail while the fault is on."""
                if disk.sync_fails:
                    raise OSError(errno.EIO, "told to fail", str(path))
                super().sync_data()

        flags = (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT | os.O_EXCL if create else 0)
        return File(os.open(path, flags, 0o640), path)

    def space(self, folder: Path) -> DiskSpace:
        """The space set by the test."""
        return DiskSpace(self.free, self.free * (20 if self.is_low else 1), *((4, 100) if self.is_low else ()))


class HealthWatch:
    """Follows the health service as a load balancer does."""

    def __init__(self, enode: SingleEnode) -> None:
        watch = enode.channels.channel_to(enode.running.address).unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        self._call = watch(health_pb2.HealthCheckRequest(service="ortoo.v1.EnodeService"))

    def end(self) -> None:
        """Stop following; a stopping server waits for its followers."""
        self._call.cancel()

    async def until(self, status: int) -> None:
        """Wait for a status."""
        async with asyncio.timeout(60):
            while True:
                answer = await self._call.read()
                assert isinstance(answer, health_pb2.HealthCheckResponse)
                if answer.status == status:
                    return


async def append(enode: SingleEnode) -> pb.AppendResponse:
    """Store one batch, or be refused."""
    call = enode.stub.Append()
    await call.write(append_request(1, TOPIC, 0, BATCH))
    answer = await call.read()
    assert isinstance(answer, pb.AppendResponse)
    call.cancel()
    return answer


async def liveness(enode: SingleEnode) -> int:
    """The answer to a liveness probe."""
    check = enode.channels.channel_to(enode.running.address).unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    answer = await check(health_pb2.HealthCheckRequest(service="live"))
    assert isinstance(answer, health_pb2.HealthCheckResponse)
    return int(answer.status)


async def test_full_disk_stops_sends_alone_and_it_resumes(tmp_path: Path) -> None:
    """While the disk is full, sends are refused and health is red; reads and offsets work. Then sends resume."""
    disk = TroubledDisk()
    async with (
        lease_giver() as giver,
        open_single_enode(
            tmp_path, topic(TOPIC), store=STORE, disk=disk, health_interval_s=0.01, namesrv_address=giver.address
        ) as enode,
    ):
        watch = HealthWatch(enode)
        await watch.until(SERVING)
        assert not (await append(enode)).HasField("failure")
        disk.free = 0
        stored = 1
        with capture_logs() as lines:
            while not (refused := await append(enode)).HasField("failure"):
                stored += 1
            await watch.until(NOT_SERVING)
        [told] = [one for one in lines if one["event"] == log_events.STORE_READ_ONLY.name]
        assert told["reason"]
        assert await liveness(enode) == SERVING
        assert refused.failure.kind == failure_pb2.FAILURE_KIND_OVERLOADED
        assert refused.failure.retry_after_ms > 0
        described = await enode.stub.DescribeStore(pb.DescribeStoreRequest())
        assert not described.writable
        assert described.reason
        commit = pb.CommitOffsetsRequest(topic_id=TOPIC, group="g", offsets=[pb.QueueOffset(offset=1)])
        await enode.stub.CommitOffsets(commit)
        queues = await enode.stub.DescribeQueues(pb.DescribeQueuesRequest(topic_id=TOPIC))
        assert queues.queues[0].end_offset == 10 * stored
        disk.free = 1 << 40
        await watch.until(SERVING)
        assert (await append(enode)).first_offset == 10 * stored
        watch.end()


async def test_a_disk_that_is_nearly_full_is_a_finding_and_a_metric(tmp_path: Path) -> None:
    """Before it is full; an enode that can still write accepts messages."""
    disk = TroubledDisk()
    async with (
        lease_giver() as giver,
        open_single_enode(tmp_path, topic(TOPIC), store=STORE, disk=disk, namesrv_address=giver.address) as enode,
        asyncio.timeout(60),
    ):
        process, clock = enode.running.process, SystemClock()
        while enode.running.process.driver.log.engine.housekeeping.space.space is None:  # type: ignore[union-attr]
            await clock.sleep(0.02)
        assert not any(process.findings())
        disk.is_low = True
        while len(found := [one for one in process.findings() if one is not None]) < 2:
            await clock.sleep(0.02)
        assert [(one.name, one.critical) for one in found] == [
            ("disk nearly full", False),
            ("inodes nearly used up", True),
        ]
        values = {family.name: samples for family, samples in process.metrics.slices() if family is not None}
        assert values["ortoo_disk_free_bytes"] == [((), disk.free)]
        assert values["ortoo_disk_free_inodes"] == [((), 4)]
        assert values["ortoo_disk_full_in_seconds"] == []
        assert not (await append(enode)).HasField("failure")


async def test_failed_fsync_ends_acknowledging_until_a_restart(tmp_path: Path) -> None:
    """After an fdatasync failed nothing is acknowledged, even if it would work again, and health is red.

    Liveness also turns red, because only a restart helps. A full disk leaves it green: it recovers without a restart.
    """
    disk = TroubledDisk()
    async with (
        lease_giver() as giver,
        open_single_enode(
            tmp_path, topic(TOPIC), store=STORE, disk=disk, health_interval_s=0.01, namesrv_address=giver.address
        ) as enode,
    ):
        watch = HealthWatch(enode)
        await watch.until(SERVING)
        assert not (await append(enode)).HasField("failure")
        disk.sync_fails = True
        assert (await append(enode)).failure.kind == failure_pb2.FAILURE_KIND_UNAVAILABLE
        disk.sync_fails = False
        await watch.until(NOT_SERVING)
        assert (await append(enode)).failure.kind == failure_pb2.FAILURE_KIND_UNAVAILABLE
        assert await liveness(enode) == NOT_SERVING
        watch.end()
        assert "told to fail" in (await enode.stub.DescribeStore(pb.DescribeStoreRequest())).reason
    async with open_single_enode(tmp_path) as enode:
        assert enode.running.store.describe_queues(TOPIC)[0].end_offset >= 10


async def test_ready_is_an_enode_that_others_know(tmp_path: Path) -> None:
    """Not without a name server, nor under a name of another enode; an enode that was ready once stays ready."""
    async with lease_giver() as giver:
        giver.refuses = True
        async with open_single_enode(
            tmp_path, topic(TOPIC), heartbeat_interval_s=0.05, namesrv_address=giver.address
        ) as enode:
            watch = HealthWatch(enode)
            await watch.until(NOT_SERVING)
            assert not (await append(enode)).HasField("failure")  # a client that knows its address may continue
            giver.refuses = False
            await watch.until(SERVING)
            giver.refuses = True
            await watch.until(NOT_SERVING)
            giver.refuses = False
            await watch.until(SERVING)
            watch.end()
    async with open_single_enode(tmp_path) as enode:
        watch = HealthWatch(enode)
        await watch.until(NOT_SERVING)
        watch.end()
