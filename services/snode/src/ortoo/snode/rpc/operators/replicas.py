"""AdminService for the replicas of enodes: the name server lists them, the leader makes changes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ortoo.common.errors import Conflict, Invalid, NotFound, NotLeader, OrtooError, Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.enum_values import name_of
from ortoo.common.grpc.errors import Context
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.rpc.operators.directory import DirectoryAdminHandlers, forward
from ortoo.v1 import enode_replicas_pb2 as pb
from ortoo.v1 import replica_admin_pb2, replica_report_pb2, topic_pb2
from ortoo.v1.enode_replicas_pb2_grpc import EnodeReplicasServiceStub

CHANGE_TIMEOUT_S = 10.0
"""Timeout of a transfer of leadership, or of a change of replicas."""
LIST_TIMEOUT_S = 3.0
DISK_TIMEOUT_S = 1.5
"""Timeout of a replica, shorter than the timeouts of clients, so that they get the answers of the others."""
WAITING, LEARNING, AWAY = (
    topic_pb2.ENODE_REPLICA_STATE_WAITING,
    topic_pb2.ENODE_REPLICA_STATE_LEARNING,
    topic_pb2.ENODE_REPLICA_STATE_AWAY,
)
A = TypeVar("A")
Method = Callable[[EnodeReplicasServiceStub], Callable[..., Awaitable[A]]]


@dataclass(frozen=True, slots=True)
class EnodeProcess:
    """A process of an enode: the enode alone, or one of its replicas."""

    enode: str
    address: str
    alive: bool
    replica: int = 0
    """The number of the replica; 0 = the name server does not know it."""


async def enode_processes(cluster: ClusterView) -> list[EnodeProcess]:
    """The processes of all enodes. Errors: those of the name server."""
    with rpc_errors(cluster.name_server.peer, is_internal=True):
        request = replica_admin_pb2.ListReplicasRequest()
        known = await cluster.name_server.stub.ListReplicas(request, timeout=LIST_TIMEOUT_S)
    found = [
        EnodeProcess(one.enode, replica.address, replica.state != AWAY, replica.replica.number)
        for one in known.enodes
        for replica in one.replicas
        if replica.address
    ]
    with_replicas = {one.enode for one in found}
    alone = (one for one in cluster.directory.expected_enodes() if one.name not in with_replicas)
    return [*found, *(EnodeProcess(one.name, one.address, one.alive) for one in alone)]


@dataclass(kw_only=True, eq=False)
class ReplicaAdminHandlers(DirectoryAdminHandlers):
    """The calls of AdminService for the replicas of enodes."""

    runtime: Runtime

    ListReplicas = forward("ListReplicas")
    """The replicas: leader, state, lag."""
    ElectReplica = forward("ElectReplica")
    """Propose a replica when the enode has no leader."""
    AcceptStore = forward("AcceptStore")
    """Accept another store of an enode, so that the enode can register with it."""

    ForgetEnode = forward("ForgetEnode", lambda it, _, answer: it.cluster.watch.wait_for_version(answer.version))
    """Remove an enode that does not come back from all topics."""

    async def ListDisks(
        self, request: replica_admin_pb2.ListDisksRequest, context: Context
    ) -> replica_admin_pb2.ListDisksResponse:
        """The disk of each replica of one enode or of all. A replica that does not answer has an error instead."""
        processes = [one for one in await enode_processes(self.cluster) if request.enode in ("", one.enode)]
        if not processes and request.enode:
            raise NotFound(f"there is no enode {request.enode}; `ortoo cluster` lists the enodes", field="enode")
        disks = await asyncio.gather(*map(self._disk, processes))
        return replica_admin_pb2.ListDisksResponse(disks=sorted(disks, key=lambda one: (one.enode, one.replica)))

    async def _disk(self, process: EnodeProcess) -> replica_admin_pb2.ReplicaDisk:
        found = replica_admin_pb2.ReplicaDisk(enode=process.enode, replica=process.replica, address=process.address)
        if not process.alive:
            found.error = "the process is not running, or its lease has expired"
            return found
        channel = self.runtime.channels.channel_to(process.address)
        try:
            with rpc_errors(f"enode {process.enode}", is_internal=True):
                request = pb.DescribeReplicasRequest(enode=process.enode)
                answer = await EnodeReplicasServiceStub(channel).DescribeReplicas(request, timeout=DISK_TIMEOUT_S)
        except OrtooError as error:
            found.error = str(error)
            return found
        found.replica = answer.replica.number
        if answer.HasField("disk"):
            found.disk.CopyFrom(answer.disk)
        return found

    async def HandOver(self, request: pb.HandOverRequest, context: Context) -> pb.HandOverResponse:
        """Transfer leadership of an enode to another replica."""
        replicas = await self._replicas(request.enode)
        if request.HasField("successor"):
            successor = _find_replica(replicas, request.successor, "successor")
            if successor.state in (WAITING, LEARNING, AWAY):
                raise Conflict(
                    f"replica {successor.replica.number} of {request.enode} is {_state_name(successor)}; choose a "
                    "follower",
                    field="successor",
                )
            request.successor.CopyFrom(successor.replica)
        return await self._call_leader(replicas, lambda stub: stub.HandOver, request)

    async def AddReplica(self, request: pb.AddReplicaRequest, context: Context) -> pb.AddReplicaResponse:
        """Add a disk that waits to be added as a replica of an enode."""
        replicas = await self._replicas(request.enode)
        added = _find_replica(replicas, request.replica, "member", (WAITING,))
        if added.state == AWAY:
            raise Conflict(
                f"replica {added.replica.number} of {request.enode} exists already and is away; start it. If its disk "
                f"{added.replica.disk} is lost, start it with an empty folder, and then add the new disk",
                field="replica",
            )
        request.replica.CopyFrom(added.replica)
        request.replica_address = request.replica_address or added.replica_address
        return await self._call_leader(replicas, lambda stub: stub.AddReplica, request)

    async def RemoveReplica(self, request: pb.RemoveReplicaRequest, context: Context) -> pb.RemoveReplicaResponse:
        """Remove a replica from an enode."""
        replicas = await self._replicas(request.enode)
        request.replica.CopyFrom(_find_replica(replicas, request.replica, "member").replica)
        return await self._call_leader(replicas, lambda stub: stub.RemoveReplica, request)

    async def _replicas(self, enode: str) -> replica_admin_pb2.ReplicaSet:
        if not enode:
            raise Invalid("is missing; `ortoo enode replicas` lists the enodes", field="enode")
        with rpc_errors(self.cluster.name_server.peer):
            request = replica_admin_pb2.ListReplicasRequest(enode=enode)
            answer = await self.cluster.name_server.stub.ListReplicas(request, timeout=LIST_TIMEOUT_S)
        return answer.enodes[0]

    async def _call_leader(self, replicas: replica_admin_pb2.ReplicaSet, method: Method[A], request: Any) -> A:
        """The leader's answer, or the new leader's if leadership has moved. Errors: those of the leader."""
        address = next((one.address for one in replicas.replicas if one.replica == replicas.leader), "")
        if not address:
            raise Unavailable(
                f"enode {replicas.enode} has no leader now; check `ortoo enode replicas {replicas.enode}`, then retry",
                retry_after_ms=1000,
            )
        try:
            return await self._call(address, method, request)
        except NotLeader as moved:
            if moved.leader_address in ("", address):
                raise
            return await self._call(moved.leader_address, method, request)

    async def _call(self, address: str, method: Method[A], request: Any) -> A:
        with rpc_errors(f"enode at {address}"):
            stub = EnodeReplicasServiceStub(self.runtime.channels.channel_to(address))
            return await method(stub)(request, timeout=CHANGE_TIMEOUT_S)


def _find_replica(
    replicas: replica_admin_pb2.ReplicaSet,
    chosen: replica_report_pb2.ReplicaId,
    field: str,
    preferred: Sequence[int] = (),
) -> replica_admin_pb2.ReplicaStatus:
    """The replica with the given number, and disk if it is given. Replicas in a `preferred` state have precedence.

    Errors: Invalid, NotFound, Conflict if two disks have the number.
    """
    if not chosen.number:
        raise Invalid("is missing; give the number of the replica", field=f"{field}.number")
    found = [
        one
        for one in replicas.replicas
        if one.replica.number == chosen.number and chosen.disk in ("", one.replica.disk)
    ]
    found = [one for one in found if one.state in preferred] or found
    if not found:
        numbers = ", ".join(sorted({str(one.replica.number) for one in replicas.replicas}, key=int)) or "none"
        raise NotFound(
            f"enode {replicas.enode} has no replica {chosen.number}{' with that disk' if chosen.disk else ''}, "
            f"neither among those that report nor in its log; its replicas are {numbers}",
            field=field,
        )
    if len(found) > 1:
        disks = ", ".join(f"{one.replica.disk} ({_state_name(one)})" for one in found)
        raise Conflict(
            f"two disks of enode {replicas.enode} have number {chosen.number}: {disks}; name the disk as well",
            field=f"{field}.disk",
        )
    return found[0]


def _state_name(status: replica_admin_pb2.ReplicaStatus) -> str:
    name = name_of(topic_pb2.EnodeReplicaState, status.state)
    return name.removeprefix("ENODE_REPLICA_STATE_").lower()
