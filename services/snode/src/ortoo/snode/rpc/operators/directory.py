"""AdminService for topics, groups and users: calls are forwarded to the name server."""

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
    """A handler that forwards to the name server, and waits with `then` until the change is visible here."""

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
    """The part of AdminService for data of the name server."""

    cluster: Cluster
    topics: Topics

    CreateTopic = passed_on("CreateTopic", lambda it, _, answer: it.topics.arrival.of(topic_of(answer.topic)))
    """Create a topic; it can be used when this returns."""
    UpdateTopic = passed_on("UpdateTopic", lambda it, _, answer: it.topics.arrival.of(topic_of(answer.topic)))
    """Change a topic; the change is in force when this returns."""
    DeleteTopic = passed_on("DeleteTopic", lambda it, request, _: it.cluster.watch.gone(request.name))
    """Delete a topic; its messages stay until the end of the grace period."""
    UndeleteTopic = passed_on("UndeleteTopic", lambda it, _, answer: it.topics.arrival.of(topic_of(answer.topic)))
    """Undelete a topic; it can be used when this returns."""
    ListDeletedTopics = passed_on("ListDeletedTopics")
    """The deleted topics that can be undeleted."""
    ListOfferedTopics = passed_on("ListOfferedTopics")
    """Topics that enodes store and the directory lacks."""
    AdoptTopics = passed_on("AdoptTopics", lambda it, _, answer: it.topics.arrival.all_of(map(topic_of, answer.topics)))
    """Adopt such topics; they can be used when this returns."""
    PutGroup = passed_on("PutGroup", lambda it, _, answer: it.cluster.watch.reached(answer.group.version))
    """Create a group or change it."""
    DeleteGroup = passed_on("DeleteGroup")
    """Delete a group; enodes keep its offsets until the end of the grace period."""
    UndeleteGroup = passed_on("UndeleteGroup", lambda it, _, answer: it.cluster.watch.reached(answer.group.version))
    """Undelete a group; its settings are in force when this returns."""
    ListDeletedGroups = passed_on("ListDeletedGroups")
    """The deleted groups that can be undeleted."""
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
