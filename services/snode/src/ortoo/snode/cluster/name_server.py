"""The client of the name servers: one stub, several addresses, and errors that name the server."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.cluster.route_watch import RoutePosition
from ortoo.common.directory.group import Group
from ortoo.common.directory.topic import MessageType, Permission
from ortoo.common.errors import AlreadyExists, Forbidden, NotFound, OrtooError, Unavailable, Unsupported
from ortoo.common.errors.status import rpc_errors
from ortoo.common.groups.group_topics import NO_OWNER, TopicOwner
from ortoo.common.grpc.channels import Channels, Headers
from ortoo.common.grpc.cluster_token import ADMIN_TOKEN
from ortoo.common.process.clock import Clock
from ortoo.snode.cluster.routes import DirectoryUpdate, Topic
from ortoo.snode.cluster.wire import decode_group, decode_in_slices, decode_topic
from ortoo.v1 import lite_topics_pb2, namesrv_pb2, topic_pb2
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub

Answer = TypeVar("Answer")
CALL_TIMEOUT_S = 3.0


class TopicsAnswer(NamedTuple):
    """Topics as one name server knows them."""

    topics: Sequence[Topic]
    version: int
    """The version of its directory; 0 = not known."""


@dataclass(slots=True, eq=False)
class NameServerClient:
    """A client of the name servers, which share a database. If one fails, the next calls go to another."""

    servers: NameServers
    channels: Channels
    clock: Clock
    admin_token: str = ""
    """The token that name servers require for calls about secrets."""
    _position: RoutePosition = field(init=False)
    """The routes that the caller of `watch` has applied."""

    def __post_init__(self) -> None:
        """Start without routes."""
        self._position = RoutePosition(self.clock, lite_scope="")

    @property
    def admin_metadata(self) -> Headers:
        """The headers that name servers require for calls about secrets."""
        return ((ADMIN_TOKEN, self.admin_token),) if self.admin_token else ()

    @property
    def peer(self) -> str:
        """The text for the name server in error messages."""
        return "the name server"

    @property
    def stub(self) -> NameServiceStub:
        """The stub of the current name server, for a single call by `call` or within `rpc_errors`."""
        return NameServiceStub(self.channels.channel_to(self.servers.current))

    async def call(self, method: Callable[..., Awaitable[Answer]], request: object, metadata: Headers = ()) -> Answer:
        """Call a method of `stub`; returns its answer. Errors: those of the name server, Unavailable."""
        with rpc_errors(self.peer, is_internal=True):
            return await method(request, timeout=CALL_TIMEOUT_S, metadata=metadata)

    def fail_over(self, error: OrtooError) -> None:
        """Change to the next name server if `error` means that the current one is unreachable."""
        if isinstance(error, Unavailable):
            self.servers.next_after(self.servers.current)

    async def watch(self) -> AsyncIterator[DirectoryUpdate]:
        """Yield a snapshot, or the changes since an earlier watch, then every change.

        Ends or raises when the name server disconnects.
        """
        request = self._position.request(include_handle_keys=True)
        with rpc_errors(self.peer, is_internal=True):
            async for update in self._position.follow(self.stub.WatchRoutes(request, metadata=self.admin_metadata)):
                yield await decode_in_slices(update, self.clock)

    async def get_topic(self, name: str) -> Topic:
        """The topic with this name. Errors: NotFound, Unavailable."""
        answer = await self.call(self.stub.GetTopic, namesrv_pb2.GetTopicRequest(name=name))
        return decode_topic(answer.topic)

    async def get_topics(self, names: Sequence[str] = (), topic_ids: Sequence[int] = ()) -> TopicsAnswer:
        """The topics that exist of at most 1,000 names and ids. Errors: Unavailable.

        A name server of an earlier version knows no version of its answer, and no topics by id.
        """
        request = topic_pb2.GetTopicsRequest(names=names, topic_ids=topic_ids)
        try:
            answer = await self.call(self.stub.GetTopics, request)
        except Unsupported:
            found = []
            for name in names:
                with contextlib.suppress(NotFound):
                    found.append(await self.get_topic(name))
            return TopicsAnswer(found, 0)
        return TopicsAnswer([decode_topic(topic) for topic in answer.topics], answer.version)

    async def list_lite_topics(self, parent: str, after: str, limit: int) -> tuple[TopicsAnswer, str]:
        """A page of the lite topics of a parent, and the `after` of the next page. Errors: Unavailable."""
        request = namesrv_pb2.ListTopicsRequest(parent=parent, after=after, limit=limit)
        answer = await self.call(self.stub.ListTopics, request)
        topics = [topic for topic in map(decode_topic, answer.topics) if topic.parent == parent]
        return TopicsAnswer(topics, answer.version), answer.next_after

    async def create_topic(
        self,
        name: str,
        *,
        queue_count: int,
        enodes: Sequence[str] = (),
        message_type: MessageType = MessageType.UNSPECIFIED,
        parent: str = "",
        owner: TopicOwner = NO_OWNER,
    ) -> Topic:
        """Create a topic on these enodes; none = on all live enodes. `parent` is that of a lite topic.

        `owner` is that of a retry topic or dead-letter topic.

        Errors: AlreadyExists, Invalid, NotFound without the parent, Overloaded, Unavailable.
        """
        request = namesrv_pb2.CreateTopicRequest(
            name=name,
            read_queue_count=queue_count,
            enodes=enodes,
            message_type=message_type.value,  # type: ignore[arg-type]
            parent=parent,
            owner_group=owner.group,
            owner_kind=owner.kind.value,  # type: ignore[arg-type]
        )
        answer = await self.call(self.stub.CreateTopic, request)
        return decode_topic(answer.topic)

    async def add_topic_enode(self, name: str, enode: str) -> Topic:
        """Add queues of a topic on one more enode. Errors: NotFound, Unavailable."""
        request = namesrv_pb2.UpdateTopicRequest(name=name, add_enodes=[enode])
        answer = await self.call(self.stub.UpdateTopic, request)
        return decode_topic(answer.topic)

    async def set_permission(self, name: str, permission: Permission) -> Topic:
        """Set the permission of a topic. Errors: NotFound, Unavailable."""
        request = namesrv_pb2.UpdateTopicRequest(name=name, permission=permission.value)  # type: ignore[arg-type]
        answer = await self.call(self.stub.UpdateTopic, request)
        return decode_topic(answer.topic)

    async def end_lite_topics(
        self, *, close: Iterable[Topic] = (), delete: Iterable[Topic] = ()
    ) -> tuple[list[Topic], list[str]]:
        """Close and delete at most 1,000 lite topics; returns the closed ones, and the names of the deleted ones.

        Those that were changed since these versions are left as they are. Errors: Unavailable, Unsupported by a name
        server of an earlier version.
        """
        closing, deleting = (
            [lite_topics_pb2.LiteTopicVersion(name=one.name, version=one.version) for one in topics]
            for topics in (close, delete)
        )
        request = lite_topics_pb2.EndLiteTopicsRequest(close=closing, delete=deleting)
        answer = await self.call(self.stub.EndLiteTopics, request)
        return [decode_topic(topic) for topic in answer.closed], list(answer.deleted)

    async def ensure_group(self, name: str) -> Group:
        """The group with this name; a missing group is created with the default settings."""
        request = namesrv_pb2.PutGroupRequest(
            group=topic_pb2.Group(name=name, consume_enabled=True, auto_created=True), create_only=True
        )
        try:
            return decode_group((await self.call(self.stub.PutGroup, request)).group)
        except AlreadyExists:
            return await self.get_group(name)

    async def get_group(self, name: str) -> Group:
        """The settings of the group with this name. Errors: NotFound, Unavailable."""
        return decode_group(await self.stored_group(name))

    async def stored_group(self, name: str) -> topic_pb2.Group:
        """The group with this name as the name server stores it, including settings that snodes do not apply.

        Errors: NotFound, Unavailable.
        """
        groups = (await self.call(self.stub.ListGroups, namesrv_pb2.ListGroupsRequest(name=name))).groups
        found = next((group for group in groups if group.name == name), None)
        if found is None:
            raise NotFound(f"there is no group {name!r}", field="group")
        return found

    async def put_group(self, group: topic_pb2.Group, fields: Iterable[str] = ()) -> topic_pb2.Group:
        """Create a group, or change the settings `fields` of an existing one (none = all that `group` has).

        Errors: Invalid, Overloaded, Unavailable.
        """
        return (await self.call(self.stub.PutGroup, namesrv_pb2.PutGroupRequest(group=group, fields=fields))).group

    async def get_secret(self, access_key: str) -> str:
        """The secret of the user with this access key.

        Errors: NotFound, Forbidden for a disabled user, Unavailable (also if this snode may not read users).
        """
        request = namesrv_pb2.GetUserRequest(access_key=access_key)
        try:
            answer = await self.call(self.stub.GetUser, request, self.admin_metadata)
        except Forbidden as error:  # it is about this snode, not about the user
            raise Unavailable(
                f"the name server does not let this snode read users: {error.message}. Give both processes the "
                "same admin_token_file, or give the snode a certificate of the role snode"
            ) from None
        if not answer.user.enabled:
            raise Forbidden(f"user {access_key} is disabled", field="access_key")
        return answer.secret_key

    async def register(
        self, name_server: str, name: str, addresses: tuple[str, str], incarnation: str, *, shares_membership: bool
    ) -> float:
        """Register a snode at one name server, or renew its lease; returns the lease in seconds.

        `addresses` are those for clients and for other snodes. Errors: Conflict if this snode may not run beside
        another.
        """
        request = namesrv_pb2.RegisterSnodeRequest(
            snode=topic_pb2.Snode(name=name, address=addresses[0], cluster_address=addresses[1]),
            incarnation=incarnation,
            shares_membership=shares_membership,
        )
        with rpc_errors(f"name server {name_server}"):
            answer = await NameServiceStub(self.channels.channel_to(name_server)).RegisterSnode(
                request, timeout=CALL_TIMEOUT_S
            )
        return answer.lease_ms / 1000

    async def unregister(self, name_server: str, name: str) -> None:
        """Release a snode's lease at one name server."""
        request = namesrv_pb2.UnregisterRequest(snode=name)
        with rpc_errors(f"name server {name_server}"):
            await NameServiceStub(self.channels.channel_to(name_server)).Unregister(request, timeout=1.0)
