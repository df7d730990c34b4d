"""Faults of the replicas of an enode, for the alert tests; the replicas exist only in their reports."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ortoo.common.grpc.channels import Channels
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import replica_report_pb2
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from tests.deploy.alert_scene import Scene, running


async def _reports(scene: Scene, enode: str, numbers: Sequence[int], leaders: Sequence[int] = (0,)) -> None:
    """The metrics of an enode's three replicas, twice a second; the leader changes each time."""
    clock, epoch = SystemClock(), 1
    async with Channels() as channels:
        stub = NameServiceStub(channels.channel_to(scene.namesrv.address))
        request = replica_report_pb2.ReportReplicaRequest(
            enode=enode,
            set_id=f"set {enode}",
            incarnation=1,
            address="127.0.0.1:1",
            replica_address="127.0.0.1:2",
            voters=[replica_report_pb2.ReplicaId(number=one, disk="disk") for one in (1, 2, 3)],
        )
        try:
            while True:
                for number in numbers:
                    request.replica.number, request.replica.disk = number, "disk"
                    request.epoch, request.is_leading = epoch, leaders[epoch % len(leaders)] == number
                    await stub.ReportReplica(request)
                epoch += 1
                await clock.sleep(0.5)
        finally:
            request.is_leaving = True
            for number in numbers:
                request.replica.number = number
                await stub.ReportReplica(request)


@asynccontextmanager
async def missing_member(scene: Scene) -> AsyncIterator[None]:
    """One of three replicas no longer reports, and the others cannot agree on a leader."""
    async with running(scene.background, _reports(scene, "three", (1, 2))):
        yield


@asynccontextmanager
async def unsteady_leader(scene: Scene) -> AsyncIterator[None]:
    """The leader of an enode changes again and again."""
    async with running(scene.background, _reports(scene, "unsteady", (1, 2, 3), leaders=(1, 2, 3))):
        yield
