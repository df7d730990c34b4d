"""Conversions between values of the name server and protobuf messages, for fields with different names."""

from ortoo.common.cluster.names import check_process_name
from ortoo.common.directory.group import Group
from ortoo.common.directory.topic import PublishPlace
from ortoo.common.errors import Invalid
from ortoo.common.grpc.messages import read, read_request, write
from ortoo.namesrv.catalog.users import User
from ortoo.namesrv.decisions.deletions import TopicDeletion
from ortoo.namesrv.decisions.groups import FieldSelection
from ortoo.namesrv.decisions.replicas import Proposal, ReplicaSet, ReplicaState, ReplicaStatus, majority
from ortoo.namesrv.decisions.topics import Topic, TopicChange
from ortoo.v1 import namesrv_pb2, replica_admin_pb2, replica_report_pb2, topic_pb2

TOPICS_AT_ONCE_MAX = 1_000


def check_topics_at_once(count: int, field: str) -> None:
    """Refuse a request with too many topics. Errors: Invalid."""
    if count > TOPICS_AT_ONCE_MAX:
        raise Invalid(f"{count} topics; request at most {TOPICS_AT_ONCE_MAX} at once", field=field)


def topic_change_of(request: namesrv_pb2.UpdateTopicRequest) -> TopicChange:
    """Decode a request to change a topic. Errors: Invalid."""
    places = tuple(read(PublishPlace, place) for place in request.publish_order.places)
    return read_request(
        TopicChange,
        request,
        publish_order=places if request.HasField("publish_order") else None,
        lite_ttl_ms=request.lite_ttl_ms if request.HasField("lite_ttl_ms") else None,
    )


def lite_scope_of(request: namesrv_pb2.WatchRoutesRequest) -> str | None:
    """The lite topics that a watcher gets first, as in `WatchStart.lite_scope`. Errors: Invalid."""
    match request.lite_topics:
        case topic_pb2.WATCHED_LITE_TOPICS_NONE:
            return ""
        case topic_pb2.WATCHED_LITE_TOPICS_ON_ENODE:
            check_process_name(request.enode, "enode")
            return request.enode
        case _:
            return None


def topic_to(topic: Topic) -> topic_pb2.Topic:
    """The protobuf message of a topic, with its placements."""
    return write(topic_pb2.Topic, topic, publish_order=_order_to(topic), placement_set_id=0)


def topic_with_set_id(topic: Topic) -> topic_pb2.Topic:
    """The protobuf message of a topic that names its placements by id."""
    return write(topic_pb2.Topic, topic, publish_order=_order_to(topic), placements=())


def _order_to(topic: Topic) -> topic_pb2.PublishOrder | None:
    places = [write(topic_pb2.PublishPlace, place) for place in topic.publish_order]
    return topic_pb2.PublishOrder(places=places) if places else None


def deleted_to(deletion: TopicDeletion) -> namesrv_pb2.DeletedTopic:
    """The protobuf message of a deleted topic."""
    return write(namesrv_pb2.DeletedTopic, deletion, topic=topic_to(deletion.topic))


def group_of(group: topic_pb2.Group) -> Group:
    """Decode a group; its version and creation time are ignored, because callers cannot set them. Errors: Invalid."""
    return read_request(Group, group, "group", version=0, created_at_ms=0)


def selection_of(request: namesrv_pb2.PutGroupRequest) -> FieldSelection:
    """The settings of a group that a request changes.

    They are the settings named in `fields`. If it is empty, they are all set fields and all fields without presence.
    """
    group, fields = request.group, request.group.DESCRIPTOR.fields
    present = {one.name for one, _ in group.ListFields()}
    held = {one.name for one in fields if one.message_type is not None or not one.has_presence or one.name in present}
    return FieldSelection(tuple(request.fields), held)


def user_to(user: User) -> namesrv_pb2.User:
    """The protobuf message of a user, which has no field for the secret."""
    return write(namesrv_pb2.User, user)


def report_response(members: ReplicaSet, proposal: Proposal | None) -> replica_report_pb2.ReportReplicaResponse:
    """The answer to a replica's report."""
    addresses = [
        write(replica_report_pb2.ReplicaAddress, reported.report) for _, reported in sorted(members.reports.items())
    ]
    return replica_report_pb2.ReportReplicaResponse(proposal=_proposal_to(proposal), replicas=addresses)


def replica_set_to(members: ReplicaSet, proposal: Proposal | None, now_s: float) -> replica_admin_pb2.ReplicaSet:
    """The protobuf message of an enode's replicas, for the tools of operators."""
    latest, leader = members.configuration(), members.leader()
    end = leader.tail.position if leader else None
    return replica_admin_pb2.ReplicaSet(
        enode=members.enode,
        set_id=members.set_id,
        leader=write(replica_report_pb2.ReplicaId, leader.replica) if leader else None,
        proposal=_proposal_to(proposal),
        replicas=[_status_to(one, end, now_s) for one in members.statuses()],
        majority=majority(latest.voters) if latest else 0,
    )


def _status_to(status: ReplicaStatus, end: int | None, now_s: float) -> replica_admin_pb2.ReplicaStatus:
    member = write(replica_report_pb2.ReplicaId, status.replica)
    state = topic_pb2.EnodeReplicaState.ValueType(status.state)
    if status.reported is None:
        return replica_admin_pb2.ReplicaStatus(replica=member, state=state)
    report = status.reported.report
    is_here = status.state not in (ReplicaState.AWAY, ReplicaState.WAITING)
    return write(
        replica_admin_pb2.ReplicaStatus,
        report,
        state=state,
        reported_ms_ago=max(0, int((now_s - status.reported.received_at_s) * 1000)),
        lag_bytes=max(0, end - report.tail.position) if end is not None and is_here else None,
    )


def _proposal_to(proposal: Proposal | None) -> replica_report_pb2.Proposal | None:
    return write(replica_report_pb2.Proposal, proposal) if proposal else None
