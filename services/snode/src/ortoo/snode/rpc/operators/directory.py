"""AdminService about topics, groups and users: what the name server decides is passed on to it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ortoo.common.grpc.errors import Context
from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.wire import topic_of, topic_to
from ortoo.snode.topics import Topics
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1.admin_pb2_grpc import AdminServiceServicer


def passed_on(
    method: str,
    then: Callable[["DirectoryAdmin", Any, Any], Awaitable[object]] | None = None,
    *,
    is_admin: bool = False,
) -> Any:
    """A handler that has the name server answer, and waits with `then` until its answer counts here."""

    async def handler(service: "DirectoryAdmin", request: Any, context: Context) -> Any:
        name_server = service.cluster.name_server
        metadata = name_server.admin_metadata if is_admin else ()
        answer: object = await name_server.call(getattr(name_server.stub, method), request, metadata)
        if then is not None:
            await then(service, request, answer)
        return answer

    return handler


@dataclass(kw_only=True, eq=False)
class DirectoryAdmin(AdminServiceServicer):
    """The part of AdminService that is about what the name server keeps."""

    cluster: Cluster
    topics: Topics

    CreateTopic = passed_on("CreateTopic", lambda it, _, answer: it.topics.arrival.of(topic_of(answer.topic)))
    """Create a topic; it can be used when this returns."""
    UpdateTopic = passed_on("UpdateTopic", lambda it, _, answer: it.topics.arrival.of(topic_of(answer.topic)))
    """Change a topic; the change is in force when this returns."""
    DeleteTopic = passed_on("DeleteTopic", lambda it, request, _: it.cluster.watch.gone(request.name))
    """Delete a topic; its messages stay until the grace period is over."""
    UndeleteTopic = passed_on("UndeleteTopic", lambda it, _, answer: it.topics.arrival.of(topic_of(answer.topic)))
    """Take a deletion back; the topic can be used when this returns."""
    ListDeletedTopics = passed_on("ListDeletedTopics")
    """The deleted topics that can come back."""
    ListOfferedTopics = passed_on("ListOfferedTopics")
    """What enodes hold and the directory does not know."""
    AdoptTopics = passed_on("AdoptTopics", lambda it, _, answer: it.topics.arrival.all_of(map(topic_of, answer.topics)))
    """Take offered topics in; they can be used when this returns."""
    PutGroup = passed_on("PutGroup", lambda it, _, answer: it.cluster.watch.reached(answer.group.version))
    """Create a group or change it."""
    DeleteGroup = passed_on("DeleteGroup")
    """Delete a group; enodes keep its offsets until the grace period is over."""
    UndeleteGroup = passed_on("UndeleteGroup", lambda it, _, answer: it.cluster.watch.reached(answer.group.version))
    """Take a deletion back; its settings are in force when this returns."""
    ListDeletedGroups = passed_on("ListDeletedGroups")
    """The deleted groups that can come back."""
    ListGroups = passed_on("ListGroups")
    """All groups, by name."""
    PutUser = passed_on("PutUser", is_admin=True)
    """Create or change a user."""
    DeleteUser = passed_on("DeleteUser", is_admin=True)
    """Delete a user."""
    ListUsers = passed_on("ListUsers", is_admin=True)
    """All users, without their secrets."""

    async def ListTopics(self, request: pb.ListTopicsRequest, context: Context) -> pb.ListTopicsResponse:
        """All topics, by name."""
        return pb.ListTopicsResponse(topics=map(topic_to, self.cluster.directory.topics()))
