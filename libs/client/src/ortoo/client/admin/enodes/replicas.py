"""The operator's calls about replicas of enodes. All go through AdminService, so grpcurl can call them too."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ortoo.client.core.connection import Connection
from ortoo.client.core.wire import EnumNames
from ortoo.common.errors import Invalid
from ortoo.common.grpc.messages import read
from ortoo.v1 import enode_replicas_pb2, replica_admin_pb2, replica_report_pb2, topic_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub

_STATES = EnumNames("state", topic_pb2.EnodeReplicaState)
NUMBER_MAX = 1_000


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A replica: a process with a copy of an enode's log, as last reported to the name server."""

    number: int
    disk: str
    """The id of its disk; a replica with an emptied disk is another one."""
    state: str
    """leading, following, learning (without a vote yet), away, or waiting (an empty disk that may be added)."""
    address: str = ""
    replica_address: str = ""
    role: str = ""
    epoch: int = 0
    """The highest epoch that it has voted in."""
    tail_epoch: int = 0
    """The epoch of the last frame of its log."""
    tail_position: int = 0
    """The end of its log."""
    committed: int = 0
    """Everything before it is known to be on a quorum of the disks."""
    is_electable: bool = False
    is_leader_silent: bool = False
    """Whether it receives nothing from a leader."""
    reported_ms_ago: int | None = None
    """None = it has not reported to the name server that answered."""
    lag_bytes: int | None = None
    """Lag behind the leader's log; None = unknown."""


@dataclass(frozen=True, slots=True)
class ReplicaSetInfo:
    """The replicas of one enode."""

    enode: str
    set_id: str
    leader: int | None
    """The number of the replica that leads; None = no leader is known to the name server."""
    proposed: int | None
    """The number of the replica that the name servers proposed last."""
    proposed_epoch: int
    majority: int
    """The number of replicas needed to elect a leader and to acknowledge a message."""
    replicas: tuple[ReplicaInfo, ...]


@dataclass(frozen=True, slots=True)
class ForgottenEnode:
    """The topics that had queues on a forgotten enode."""

    reduced_topics: tuple[str, ...]
    """Topics that keep their queues on other enodes."""
    moved_topics: tuple[str, ...]
    """Topics that had queues on no other enode, and have empty queues on the live enodes now."""
    lost_deleted_topics: tuple[str, ...]
    """Deleted topics that can no longer be restored."""


@dataclass(frozen=True, slots=True)
class DiskState:
    """The space on the disk of a data folder."""

    free_bytes: int
    size_bytes: int
    free_inodes: int
    """Files that the disk can still have."""
    inodes: int
    """Files that the disk can have; 0 = no limit."""
    full_in_ms: int | None = None
    """Time until the disk is full at the rate of the last hours; None = not foreseeable, or retention prevents it."""


@dataclass(frozen=True, slots=True)
class ReplicaDisk:
    """The disk of one replica, or the reason why it is not known."""

    enode: str
    replica: int
    """The number of the replica; 0 = not known."""
    address: str
    disk: DiskState | None
    """None = not measured yet, or there is an error."""
    error: str = ""


class ReplicaAdmin:
    """The operator's calls about the replicas of enodes. Available as `Client.admin.replicas`."""

    def __init__(self, connection: Connection) -> None:
        """Applications use `Client.admin.replicas`."""
        self._call = partial(connection.call, AdminServiceStub)

    async def list(self, enode: str = "") -> tuple[ReplicaSetInfo, ...]:
        """The replicas of one enode, or of all enodes with several replicas. Errors: NotFound."""
        answer = await self._call("ListReplicas", replica_admin_pb2.ListReplicasRequest(enode=enode))
        return tuple(map(_replica_set, answer.enodes))

    async def list_disks(self, enode: str = "") -> Sequence[ReplicaDisk]:
        """The disk of each replica of one enode or of all, by enode and replica. Errors: NotFound, Unsupported."""
        answer = await self._call("ListDisks", replica_admin_pb2.ListDisksRequest(enode=enode))
        return tuple(read(ReplicaDisk, one) for one in answer.disks)

    async def transfer_leadership(self, enode: str, to: int | None = None) -> int:
        """Transfer leadership to a replica, by default the replica with the longest log; returns its number.

        Errors: NotFound, Conflict, or Unavailable without a leader.
        """
        request = enode_replicas_pb2.HandOverRequest(
            enode=enode, successor=_replica_id(to, "") if to is not None else None
        )
        answer = await self._call("HandOver", request)
        return int(answer.successor.number)

    async def elect(self, enode: str, number: int, disk: str = "") -> int:
        """Propose a replica as leader if there is no leader; returns the proposed epoch. Errors: NotFound, Conflict."""
        request = replica_admin_pb2.ElectReplicaRequest(enode=enode, replica=_replica_id(number, disk))
        return int((await self._call("ElectReplica", request)).proposal.epoch)

    async def add(self, enode: str, number: int, disk: str = "") -> None:
        """Add a replica that waits with an empty disk; the new replica votes once it has the log.

        Errors: NotFound, Conflict, Unavailable.
        """
        await self._call(
            "AddReplica", enode_replicas_pb2.AddReplicaRequest(enode=enode, replica=_replica_id(number, disk))
        )

    async def remove(self, enode: str, number: int, disk: str = "") -> None:
        """Remove a replica. Errors: NotFound, Conflict when it leads, Unavailable."""
        await self._call(
            "RemoveReplica", enode_replicas_pb2.RemoveReplicaRequest(enode=enode, replica=_replica_id(number, disk))
        )

    async def accept_store(self, enode: str, store_id: str) -> str:
        """Accept another store of an enode, such as an empty one; returns the id of the store that it replaces.

        Until the new store has registered, the registered store is accepted too. To cancel the change, give the id of
        the registered store as `store_id`. Errors: NotFound for an enode that was never registered, Invalid,
        Unavailable.
        """
        request = replica_admin_pb2.AcceptStoreRequest(enode=enode, store_id=store_id)
        return str((await self._call("AcceptStore", request)).former_store_id)

    async def forget(self, enode: str, *, lose: bool = False) -> ForgottenEnode:
        """Forget an enode that does not come back; a second call changes nothing.

        The enode can register again only after `accept_store`. Errors: NotFound, Conflict for a running enode. Without
        `lose`, Conflict if only this enode has some messages; the error names their topics.
        """
        request = replica_admin_pb2.ForgetEnodeRequest(enode=enode, lose=lose)
        return read(ForgottenEnode, await self._call("ForgetEnode", request))


def _replica_id(number: int, disk: str) -> replica_report_pb2.ReplicaId:
    if not 1 <= number <= NUMBER_MAX:
        raise Invalid(f"{number}; expected the number of a replica, 1 to {NUMBER_MAX}", field="replica")
    return replica_report_pb2.ReplicaId(number=number, disk=disk)


def _replica_set(found: replica_admin_pb2.ReplicaSet) -> ReplicaSetInfo:
    return read(
        ReplicaSetInfo,
        found,
        leader=found.leader.number if found.HasField("leader") else None,
        proposed=found.proposal.leader.number if found.HasField("proposal") else None,
        proposed_epoch=found.proposal.epoch,
        replicas=tuple(
            read(
                ReplicaInfo,
                one,
                number=one.replica.number,
                disk=one.replica.disk,
                state=_STATES.name(one.state),
                tail_epoch=one.tail.epoch,
                tail_position=one.tail.position,
            )
            for one in found.replicas
        ),
    )
