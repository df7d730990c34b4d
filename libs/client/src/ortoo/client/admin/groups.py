"""The operator's calls about groups and clients. All go through AdminService, so grpcurl can call them too."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from ortoo.client.admin.descriptions import (
    ClientDescription,
    ClientInfo,
    ClientQueue,
    ConsumeDirectlyResult,
    GroupChanges,
    GroupDescription,
    GroupInfo,
    GroupMemberInfo,
    QueueOffset,
    TopicMode,
)
from ortoo.client.admin.lag import LagHistory
from ortoo.client.admin.offset_target import offset_target
from ortoo.client.admin.operations import ParkedMessages, delivery_of
from ortoo.client.admin.topic_groups import TopicGroups
from ortoo.client.core.connection import Connection
from ortoo.client.core.queues import Queue
from ortoo.client.core.wire import EnumNames, queue_of, wire_queue
from ortoo.common.errors.status import error_of
from ortoo.common.groups.retry_policy import RetryKind, RetryPolicy
from ortoo.common.grpc.enum_values import known_or
from ortoo.common.grpc.messages import read, write
from ortoo.v1 import client_pb2, consumer_pb2, lag_pb2, park_pb2, record_pb2, session_pb2, topic_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub

_MODES = EnumNames("mode", topic_pb2.DeliveryMode, unspecified="any", separator="-")


class GroupAdmin:
    """The operator's calls about groups and clients. Available as `Client.admin.groups`."""

    def __init__(self, connection: Connection) -> None:
        """Applications use `Client.admin.groups`."""
        self._call = partial(connection.call, AdminServiceStub)

    async def describe(self, name: str) -> GroupDescription:
        """The settings of a group, its members, and its progress in its topics. Errors: NotFound."""
        answer = await self._call("DescribeGroup", client_pb2.DescribeGroupRequest(name=name))
        members = tuple(map(_group_member_info, answer.members))
        return read(GroupDescription, answer, group=group_info(answer.group), members=members)

    async def lag_history(self, group: str, topic: str = "", *, from_ms: int = 0) -> LagHistory:
        """The lag of a group over the last hour, in one topic or in all of its topics, with its retries.

        Errors: NotFound, Unsupported when the snode is older.
        """
        request = lag_pb2.ListLagHistoryRequest(group=group, topic=topic, from_ms=from_ms)
        return read(LagHistory, await self._call("ListLagHistory", request))

    async def update(self, name: str, **changes: Unpack[GroupChanges]) -> GroupInfo:
        """Change the settings that are given; a group that does not exist is created. Errors: Invalid.

        `retry` is "classic", "list:1s,5s,30s" or "exponential:1s:10m"; "exponential:1s:10m:3" multiplies each
        delay by 3 instead of 2.
        """
        settings: dict[str, Any] = {**changes}
        if (retry := changes.get("retry")) is not None:
            settings["retry"] = write(topic_pb2.RetryPolicy, RetryPolicy.read(retry))
        request = client_pb2.UpdateGroupRequest(name=name, **settings)
        return group_info((await self._call("UpdateGroup", request)).group)

    async def list_consumers(self, group: str) -> list[GroupMemberInfo]:
        """The consumers of a group. Errors: NotFound when the group has no consumer now."""
        answer = await self._call("ListConsumers", client_pb2.ListConsumersRequest(group=group))
        return list(map(_group_member_info, answer.consumers))

    async def list_topic_groups(self, topic: str) -> list[str]:
        """The names of the groups with a member that subscribes to a topic now."""
        return list((await self.describe_topic_groups(topic)).subscribed)

    async def describe_topic_groups(self, topic: str) -> TopicGroups:
        """The groups that subscribe to a topic now, and those that have offsets in it. Errors: NotFound."""
        answer = await self._call("ListTopicGroups", client_pb2.ListTopicGroupsRequest(topic=topic))
        return TopicGroups(tuple(answer.groups), tuple(answer.with_offsets))

    async def set_delivery_mode(self, group: str, topic: str, mode: str, *, force: bool = False) -> str:
        """Change how a group consumes a topic; returns the previous mode.

        `mode` is "offsets" (push and pull), "pop", "pop-in-order", or "any" (the next use decides). With `force`,
        messages that members have are delivered again. Errors: Invalid, NotFound, Conflict while members have messages.
        """
        request = client_pb2.SetDeliveryModeRequest(group=group, topic=topic, mode=_MODES.number(mode), force=force)
        return _MODES.name((await self._call("SetDeliveryMode", request)).previous)

    async def list_delivery_modes(self, group: str) -> list[TopicMode]:
        """How a group consumes each of its topics on each enode."""
        answer = await self._call("ListDeliveryModes", client_pb2.ListDeliveryModesRequest(group=group))
        return [read(TopicMode, one, mode=_MODES.name(one.mode)) for one in answer.modes]

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        *,
        time_ms: int | None = None,
        offset: int | None = None,
        offsets: Mapping[Queue, int] | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> list[QueueOffset]:
        """Move a group's offsets to `time_ms` (-1 = the end), to `offset`, or to the offset of each queue in `offsets`.

        Returns the new offsets. The group's members continue from them immediately. Without `force`, offsets move only
        backwards. With `dry_run`, nothing moves. Errors: Invalid, or NotFound for a topic or a group without offsets.
        """
        target = offset_target(time_ms, offset, offsets)
        request = client_pb2.ResetOffsetsRequest(group=group, topic=topic, force=force, dry_run=dry_run, **target)
        answer = await self._call("ResetOffsets", request)
        previous = {queue_of(one.queue): one.offset for one in answer.previous}
        refused = {queue_of(one.queue): one.offset for one in answer.forward_refused}
        return [
            replace(one, previous=previous.get(one.queue, -1), refused_offset=refused.get(one.queue, -1))
            for one in _offsets(answer)
        ]

    async def park_messages(
        self,
        group: str,
        queue: Queue,
        offsets: Sequence[int],
        *,
        message_groups: bool = False,
        reason: str = "",
        dry_run: bool = False,
    ) -> ParkedMessages:
        """Make messages of a queue dead letters of a group, whichever consumer holds them.

        A group that commits offsets parks its first unfinished messages, and its offset moves past them. In a group
        that pops, `message_groups` adds the later messages of their message groups. With `dry_run`, nothing is parked.
        Errors: Invalid, NotFound, OutOfRange (deleted by retention), Conflict (an earlier message is unfinished),
        Unsupported when a server is older.
        """
        request = park_pb2.ParkMessagesRequest(
            group=group,
            queue=wire_queue(queue),
            offsets=offsets,
            message_groups=message_groups,
            reason=reason,
            dry_run=dry_run,
        )
        answer = await self._call("ParkMessages", request)
        return read(ParkedMessages, answer, deliveries=tuple(map(delivery_of, answer.deliveries)))

    async def clone_offsets(self, from_group: str, to_group: str, topic: str) -> list[QueueOffset]:
        """Copy the offsets of one group in a topic to another group. Errors: NotFound."""
        request = client_pb2.CloneOffsetsRequest(from_group=from_group, to_group=to_group, topic=topic)
        return _offsets(await self._call("CloneOffsets", request))

    async def list_clients(self, group: str = "") -> list[ClientInfo]:
        """The clients that are connected to any snode; with `group`, only the producers and consumers of that group."""
        answer = await self._call("ListClients", client_pb2.ListClientsRequest(group=group))
        return [read(ClientInfo, one) for one in answer.clients]

    async def describe_client(self, client_id: str, group: str = "", *, ask_client: bool = True) -> ClientDescription:
        """One client and its queues, as its snode knows them; with `ask_client`, as the client reports them.

        Errors: NotFound.
        """
        request = client_pb2.DescribeClientRequest(client_id=client_id, group=group, ask_client=ask_client)
        answer = await self._call("DescribeClient", request)
        queues = answer.running.queues if answer.HasField("running") else answer.queues
        return read(
            ClientDescription,
            answer,
            queues=tuple(read(ClientQueue, one) for one in queues),
            properties=dict(answer.running.properties),
            failure=answer.failure.message,
        )

    async def print_stack(self, client_id: str) -> str:
        """The stacks of all threads and tasks of a client, as text. Errors: NotFound, Unsupported, Unavailable."""
        result = await self._command(client_id, session_pb2.Command(print_stack=session_pb2.PrintStack()))
        return str(result.stack)

    async def consume_directly(
        self, client_id: str, group: str, queue: Queue, offset: int, body: bytes, *, tag: str = ""
    ) -> ConsumeDirectlyResult:
        """Let a client's handler process one message now, independent of queue assignment; no offset moves.

        Errors: NotFound, Unavailable.
        """
        consumption = session_pb2.ConsumeMessage(
            group=group,
            queue=wire_queue(queue),
            offset=offset,
            message=record_pb2.Message(body=body, tag=tag),
        )
        result = await self._command(client_id, session_pb2.Command(consume_message=consumption))
        return read(ConsumeDirectlyResult, result.consumed)

    async def _command(self, client_id: str, command: session_pb2.Command) -> session_pb2.CommandResult:
        request = client_pb2.CallClientRequest(client_id=client_id, command=command)
        result: session_pb2.CommandResult = (await self._call("CallClient", request)).result
        if result.HasField("failure"):
            raise error_of(result.failure)
        return result


def group_info(group: topic_pb2.Group) -> GroupInfo:
    """Convert a group from its protobuf message."""
    return read(GroupInfo, group, retry=_retry_text(group.retry))


def _retry_text(policy: topic_pb2.RetryPolicy) -> str:
    """The retry policy in the form of `GroupAdmin.update`; "unknown" for a policy of a newer server."""
    kind = known_or(RetryKind, policy.kind, None)
    return "unknown" if kind is None else read(RetryPolicy, policy, kind=kind).text()


def _group_member_info(member: consumer_pb2.GroupMember) -> GroupMemberInfo:
    return read(
        GroupMemberInfo,
        member,
        topics=tuple(it.topic for it in member.subscriptions),
        broadcast=member.message_model == consumer_pb2.MESSAGE_MODEL_BROADCAST,
    )


def _offsets(answer: Any) -> list[QueueOffset]:
    return [read(QueueOffset, it) for it in answer.offsets]
