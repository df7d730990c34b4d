"""The check whether a replica set is still alive, by requests to the name servers and to the replicas themselves."""

from collections.abc import Sequence
from typing import Any

from ortoo.common.cluster.address_server import resolve_name_servers
from ortoo.common.errors import Conflict, Invalid, NotFound, OrtooError
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.cluster_token import cluster_channels, cluster_token
from ortoo.common.grpc.messages import read
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.rpc.replicas.peers import is_in_set
from ortoo.enode.settings import EnodeSettings
from ortoo.v1 import replica_admin_pb2 as pb
from ortoo.v1 import topic_pb2
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub

TIMEOUT_S = 3.0
OVERRIDE = "give --others-are-gone if that is certain"
_LIVING = (
    topic_pb2.ENODE_REPLICA_STATE_LEADING,
    topic_pb2.ENODE_REPLICA_STATE_FOLLOWING,
    topic_pb2.ENODE_REPLICA_STATE_LEARNING,
)


async def check_no_living_set(
    enode: str, set_id: str, replica: ReplicaId, settings: EnodeSettings, clock: Clock
) -> None:
    """Refuse to continue with only the disk of `replica` while another replica of the enode may be alive.

    The settings may be outdated, so the name servers are asked first for the replicas and their addresses.
    Errors: Conflict (a replica is alive), Invalid (neither a name server nor a replica answers).
    """
    async with (
        cluster_channels(settings, cluster_token(settings.cluster_token_file, clock)) as channels,
        Background("name servers") as background,
    ):
        name_servers = await resolve_name_servers(settings.namesrv_address, background=background, clock=clock)
        known = [await _list_replicas(address, enode, channels) for address in name_servers.addresses]
        answers = [one for one in known if not isinstance(one, OrtooError)]
        for address, answer in zip(name_servers.addresses, known, strict=True):
            if not isinstance(answer, OrtooError):
                check_response(answer, address, set_id, replica)
        others = {
            one.replica_address
            for answer in answers
            for one in answer.replicas
            if read(ReplicaId, one.replica) != replica
        }
        for address in sorted({*settings.replica_address_list, *others} - {""}):
            if await is_in_set(address, set_id, replica, channels):
                raise Conflict(
                    f"a replica of set {set_id} answers at {address}. If that replica leads others, the enode would "
                    f"have two sets that diverge. Stop that replica first. If its disk is lost, {OVERRIDE}",
                    field="replica_addresses",
                )
    if not answers:
        reasons = "; ".join(str(one) for one in known)
        raise Invalid(
            f"no name server at {settings.namesrv_address} reports whether the other replicas are alive "
            f"({reasons}). Give the replica's settings (-c FILE, or ORTOO_ENODE_NAMESRV_ADDRESS), start a name server, "
            f"or {OVERRIDE}",
            field="namesrv_address",
        )


async def _list_replicas(address: str, enode: str, channels: Channels) -> pb.ReplicaSet | OrtooError:
    """The replicas of an enode as a name server lists them, or its error."""
    try:
        with rpc_errors(f"name server {address}"):
            request = pb.ListReplicasRequest(enode=enode)
            found: Any = await NameServiceStub(channels.channel_to(address)).ListReplicas(request, timeout=TIMEOUT_S)
    except NotFound:
        return pb.ReplicaSet(enode=enode)
    except OrtooError as error:
        return error
    sets: Sequence[pb.ReplicaSet] = found.enodes
    return sets[0] if sets else pb.ReplicaSet(enode=enode)


def check_response(response: pb.ReplicaSet, address: str, set_id: str, replica: ReplicaId) -> None:
    """Check a name server's answer. Errors: Conflict (another replica of the enode reports to it)."""
    living = [
        one.replica.number
        for one in response.replicas
        if one.state in _LIVING and read(ReplicaId, one.replica) != replica
    ]
    if living:
        raise Conflict(
            f"name server {address} has live replicas {', '.join(map(str, living))} of enode {response.enode}, set "
            f"{response.set_id}, and this disk is of set {set_id}. The enode would have two sets that diverge. "
            "Let this disk follow them, or stop those replicas and retry when they no longer report. "
            f"If their disks are lost, {OVERRIDE}",
            field="namesrv_address",
        )
