"""Periodic announcements of this enode to every name server: its heartbeat."""

from collections.abc import Callable

from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.cluster.registrations import Registrations
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.messages import write
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.v1 import namesrv_pb2, namesrv_pb2_grpc, topic_pb2

CALL_TIMEOUT_S = 3.0
UNKNOWN_TOPICS_MAX = 10_000
"""The number of topics unknown to the directory in one announcement."""
LEAVE_TIMEOUT_S = 1.0
REASON_CHARACTERS = 500


def enode_registration(
    enode: topic_pb2.Enode,
    topics: TopicCopies,
    is_index_nearly_full: Callable[[], bool],
    write_refusal: Callable[[], str],
    log: Callable[[], topic_pb2.EnodeLog | None],
    name_servers: NameServers,
    channels: Channels,
    *,
    interval_s: float,
    clock: Clock,
    randomness: Randomness,
) -> Registrations:
    """The registrations of `enode` at the name servers, renewed at least every `interval_s`.

    Each request says whether the index is nearly full. It contains the reason if the enode refuses writes, and the
    `topics` that the directory does not know. It contains the version of the directory that the enode has applied.
    Without other replicas it also contains the ends of the `log`.
    """

    def stub(address: str) -> namesrv_pb2_grpc.NameServiceStub:
        return namesrv_pb2_grpc.NameServiceStub(channels.channel_to(address))

    async def announce(address: str) -> float:
        unknown = await topics.unknown_topics()
        request = namesrv_pb2.RegisterEnodeRequest(
            enode=enode,
            directory_id=topics.directory_id,
            directory_version=topics.directory_version,
            unknown_topics=[write(topic_pb2.StoredTopic, copy) for copy in unknown[:UNKNOWN_TOPICS_MAX]],
            unlisted_topic_count=max(0, len(unknown) - UNKNOWN_TOPICS_MAX),
            log=log(),
        )
        request.enode.index_nearly_full = is_index_nearly_full()
        request.enode.write_refusal = write_refusal()[:REASON_CHARACTERS]
        with rpc_errors(f"name server {address}"):
            answer = await stub(address).RegisterEnode(request, timeout=CALL_TIMEOUT_S)
        return answer.lease_ms / 1000

    async def leave(address: str) -> None:
        request = namesrv_pb2.UnregisterRequest(enode=enode.name, epoch=enode.epoch)
        with rpc_errors(f"name server {address}"):
            await stub(address).Unregister(request, timeout=LEAVE_TIMEOUT_S)

    return Registrations(name_servers, announce, leave, interval_s=interval_s, clock=clock, randomness=randomness)
