"""AdminService for topics, groups and users: calls are forwarded to the name server."""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ortoo.common.errors import Unavailable
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.limits.list_pages import fill_page
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.wire import decode_topic, encode_topic
from ortoo.snode.topics import TopicComponents
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1 import topic_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceServicer


def forward(
    method: str,
    then: Callable[["DirectoryAdminHandlers", Any, Any], Awaitable[object]] | None = None,
    *,
    is_admin: bool = False,
) -> Any:
    """Make a handler that forwards its requests to the name server, and then awaits `then`, if it is given.

    `then` waits until the change is visible at this snode.
    """

    async def handler(service: "DirectoryAdminHandlers", request: Any, context: Context) -> Any:
        name_server = service.cluster.name_server
        metadata = name_server.admin_metadata if is_admin else ()
        answer: object = await name_server.call(getattr(name_server.stub, method), request, metadata)
        if then is not None:
            await then(service, request, answer)
        return answer

    return handler


@dataclass(kw_only=True, eq=False)
class DirectoryAdminHandlers(AdminServiceServicer):
    """The calls of AdminService for the content of the directory."""

    runtime: Runtime
    cluster: ClusterView
    topics: TopicComponents

    CreateTopic = forward(
        "CreateTopic", lambda it, _, answer: it.topics.propagation.wait_for(decode_topic(answer.topic))
    )
    """Create a topic; it can be used when this returns."""
    UpdateTopic = forward(
        "UpdateTopic", lambda it, _, answer: it.topics.propagation.wait_for(decode_topic(answer.topic))
    )
    """Change a topic; the change is in force when this returns."""
    DeleteTopic = forward("DeleteTopic", lambda it, request, _: it.cluster.watch.wait_until_deleted(request.name))
    """Delete a topic; its messages stay until the end of the grace period."""
    UndeleteTopic = forward(
        "UndeleteTopic", lambda it, _, answer: it.topics.propagation.wait_for(decode_topic(answer.topic))
    )
    """Undelete a topic; it can be used when this returns."""
    ListDeletedTopics = forward("ListDeletedTopics")
    """The deleted topics that can be undeleted."""
    ListOrphanedTopics = forward("ListOrphanedTopics")
    """Topics that enodes store and the directory lacks."""
    AdoptTopics = forward(
        "AdoptTopics", lambda it, _, answer: it.topics.propagation.wait_for_all(map(decode_topic, answer.topics))
    )
    """Adopt orphaned topics; they can be used when this returns."""
    PutGroup = forward("PutGroup", lambda it, _, answer: it.cluster.watch.wait_for_version(answer.group.version))
    """Create a group or change it."""
    DeleteGroup = forward("DeleteGroup")
    """Delete a group; enodes keep its offsets until the end of the grace period."""
    UndeleteGroup = forward(
        "UndeleteGroup", lambda it, _, answer: it.cluster.watch.wait_for_version(answer.group.version)
    )
    """Undelete a group; its settings are in force when this returns."""
    ListDeletedGroups = forward("ListDeletedGroups")
    """The deleted groups that can be undeleted."""
    ListGroups = forward("ListGroups")
    """All groups, sorted by name."""
    PutUser = forward("PutUser", is_admin=True)
    """Create or change a user."""
    DeleteUser = forward("DeleteUser", is_admin=True)
    """Delete a user."""
    ListUsers = forward("ListUsers", is_admin=True)
    """All users, without their secrets."""

    async def ListTopics(self, request: pb.ListTopicsRequest, context: Context) -> pb.ListTopicsResponse:
        """All topics, or a page of them, sorted by name. Without a name server, lite topics are left out."""
        directory, name_server = self.cluster.directory, self.cluster.name_server
        with contextlib.suppress(Unavailable):
            listed: pb.ListTopicsResponse = await name_server.call(name_server.stub.ListTopics, request)
            return listed

        def row_of(name: str) -> topic_pb2.Topic | None:
            topic = directory.find_topic(name)
            return None if topic is None else encode_topic(topic)

        page = directory.topic_page(request.after, request.limit)
        response = pb.ListTopicsResponse()
        response.next_after = await fill_page(page, row_of, response.topics, request.limit, self.runtime.clock)
        return response
