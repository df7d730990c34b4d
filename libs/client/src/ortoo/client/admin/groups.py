"""What operators do with groups and their clients. Everything goes through AdminService, so grpcurl can do it too."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ortoo.client.admin.descriptions import GroupInfo
from ortoo.client.admin.group_descriptions import (
    ClientDescription,
    ClientInfo,
    ClientQueue,
    DirectResult,
    GroupDescription,
    MemberInfo,
    QueueOffset,
    TopicMode,
    TopicProgress,
)
from ortoo.client.core.connection import Connection
from ortoo.client.core.place import Queue
from ortoo.client.push.push_call import queue_of, wire_queue
from ortoo.common.errors import Invalid
from ortoo.common.errors.status import error_of
from ortoo.common.groups.retry_policy import RetryKind, RetryPolicy
from ortoo.v1 import client_pb2, consumer_pb2, record_pb2, session_pb2, topic_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub

_MODES = {
    "offsets": topic_pb2.DELIVERY_MODE_OFFSETS,
    "pop": topic_pb2.DELIVERY_MODE_POP,
    "pop-in-order": topic_pb2.DELIVERY_MODE_POP_IN_ORDER,
    "any": topic_pb2.DELIVERY_MODE_UNSPECIFIED,
}
_MODE_NAMES = {number: name for name, number in _MODES.items()}


class GroupAdmin:
    """An operator's calls about groups and clients. Reached as `Client.admin.groups`."""

    def __init__(self, connection: Connection) -> None:
        """`Client.admin.groups` is the way in."""
        self._connection = connection

    async def describe(self, name: str) -> GroupDescription:
        """A group's settings, its members, and how far it is in the topics they want. Errors: NotFound."""
        answer = await self._call("DescribeGroup", client_pb2.DescribeGroupRequest(name=name))
        return GroupDescription(
            group_info(answer.group),
            tuple(map(_member, answer.members)),
            tuple(TopicProgress(it.topic, _offsets(it.offsets), it.lag_messages) for it in answer.progress),
        )

    async def update(
        self,
        name: str,
        *,
        consume_enabled: bool | None = None,
        broadcast_enabled: bool | None = None,
        notify_members_changed: bool | None = None,
        slow_consumer_threshold_messages: int | None = None,
        slow_consumer_grace_ms: int | None = None,
        unacknowledged_bytes_max: int | None = None,
        attempts_max: int | None = None,
        retry: str | None = None,
        in_flight_max: int | None = None,
        park_expired: bool | None = None,
    ) -> GroupInfo:
        """Change what is given and leave the rest; a group that does not exist is created. Errors: Invalid.

        `retry` is "classic", "exponential:1s:10m", with a third part for a factor other than 2, or "list:1s,5s,30s".
        """
        request = client_pb2.UpdateGroupRequest(
            name=name,
            consume_enabled=consume_enabled,
            broadcast_enabled=broadcast_enabled,
            notify_members_changed=notify_members_changed,
            slow_consumer_threshold_messages=slow_consumer_threshold_messages,
            slow_consumer_grace_ms=slow_consumer_grace_ms,
            unacknowledged_bytes_max=unacknowledged_bytes_max,
            attempts_max=attempts_max,
            retry=None if retry is None else _wire_retry(retry),
            in_flight_max=in_flight_max,
            park_expired=park_expired,
        )
        return group_info((await self._call("UpdateGroup", request)).group)

    async def consumers(self, group: str) -> list[MemberInfo]:
        """The consumers of a group, by client id. Errors: NotFound when there is none."""
        answer = await self._call("ListConsumers", client_pb2.ListConsumersRequest(group=group))
        return list(map(_member, answer.consumers))

    async def of_topic(self, topic: str) -> list[str]:
        """The groups with a member that wants a topic now, by name."""
        answer = await self._call("ListTopicGroups", client_pb2.ListTopicGroupsRequest(topic=topic))
        return list(answer.groups)

    async def set_mode(self, group: str, topic: str, mode: str, *, force: bool = False) -> str:
        """Change how a group consumes a topic; returns how it was.

        `mode` is "offsets" (push and pull), "pop", "pop-in-order", or "any": its next use decides. Errors: Invalid,
        NotFound; Conflict while members are at work, unless forced: what they have is delivered again.
        """
        if mode not in _MODES:
            raise Invalid(f"{mode!r}; expected {', '.join(_MODES)}", field="mode")
        request = client_pb2.SetDeliveryModeRequest(group=group, topic=topic, mode=_MODES[mode], force=force)
        return _MODE_NAMES[(await self._call("SetDeliveryMode", request)).before]

    async def modes(self, group: str) -> list[TopicMode]:
        """How a group consumes its topics, by topic and enode."""
        answer = await self._call("ListDeliveryModes", client_pb2.ListDeliveryModesRequest(group=group))
        return [TopicMode(one.topic, one.enode, _MODE_NAMES[one.mode]) for one in answer.modes]

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        *,
        time_ms: int | None = None,
        offset: int | None = None,
        offsets: Mapping[Queue, int] | None = None,
        force: bool = False,
    ) -> list[QueueOffset]:
        """Move a group to a time (-1 = the end), to one offset, or to some; every queue's offset after it.

        Its members go on from there at once. Without `force` only backwards. Errors: Invalid; NotFound for a topic or
        a group without offsets.
        """
        if sum(target is not None for target in (time_ms, offset, offsets)) != 1:
            raise Invalid("give one of time_ms, offset and offsets", field="target")
        request = client_pb2.ResetOffsetsRequest(group=group, topic=topic, force=force)
        if time_ms is not None:
            request.time_ms = time_ms
        elif offset is not None:
            request.offset = offset
        else:
            starts = [consumer_pb2.QueueStart(queue=wire_queue(q), offset=it) for q, it in (offsets or {}).items()]
            request.offsets.CopyFrom(client_pb2.QueueStarts(starts=starts))
        return list(_offsets((await self._call("ResetOffsets", request)).offsets))

    async def clone_offsets(self, from_group: str, to_group: str, topic: str) -> list[QueueOffset]:
        """Give a group the offsets of another one. Errors: NotFound."""
        request = client_pb2.CloneOffsetsRequest(from_group=from_group, to_group=to_group, topic=topic)
        return list(_offsets((await self._call("CloneOffsets", request)).offsets))

    async def clients(self, group: str = "") -> list[ClientInfo]:
        """The clients that are connected, at whichever snode; with `group` only its producers and consumers."""
        answer = await self._call("ListClients", client_pb2.ListClientsRequest(group=group))
        return list(map(_client, answer.clients))

    async def describe_client(self, client_id: str, group: str = "", *, ask_client: bool = True) -> ClientDescription:
        """One client and its queues; with `ask_client` as it sees them itself. Errors: NotFound."""
        request = client_pb2.DescribeClientRequest(client_id=client_id, group=group, ask_client=ask_client)
        answer = await self._call("DescribeClient", request)
        asked = answer.HasField("running")
        return ClientDescription(
            _client(answer.client),
            tuple(map(_client_queue, answer.running.queues if asked else answer.queues)),
            dict(answer.running.properties),
            answer.failure.message if answer.HasField("failure") else "",
        )

    async def print_stack(self, client_id: str) -> str:
        """What every thread and task of a client is doing, for a person. Errors: NotFound, Unsupported, Unavailable."""
        result = await self._command(client_id, session_pb2.Command(print_stack=session_pb2.PrintStack()))
        return str(result.stack)

    async def consume_directly(
        self, client_id: str, group: str, queue: Queue, offset: int, body: bytes, *, tag: str = ""
    ) -> DirectResult:
        """Let a client's handler process one message now, whoever owns its queue; no offset moves.

        Errors: NotFound, Unavailable.
        """
        wish = session_pb2.ConsumeMessage(
            group=group,
            queue=wire_queue(queue),
            offset=offset,
            message=record_pb2.Message(body=body, tag=tag),
        )
        result = (await self._command(client_id, session_pb2.Command(consume_message=wish))).consumed
        return DirectResult(result.succeeded, result.duration_ms, result.error, result.orderly)

    async def _command(self, client_id: str, command: session_pb2.Command) -> session_pb2.CommandResult:
        request = client_pb2.CallClientRequest(client_id=client_id, command=command)
        result: session_pb2.CommandResult = (await self._call("CallClient", request)).result
        if result.HasField("failure"):
            raise error_of(result.failure)
        return result

    async def _call(self, method: str, request: Any) -> Any:
        return await self._connection.call(AdminServiceStub, method, request)


def group_info(group: topic_pb2.Group) -> GroupInfo:
    """A group as it travelled."""
    return GroupInfo(
        group.name,
        group.consume_enabled,
        group.slow_consumer_threshold_messages,
        group.slow_consumer_grace_ms,
        group.created_at_ms,
        group.attempts_max,
        _retry_text(group.retry),
        group.in_flight_max,
        group.park_expired,
    )


def _wire_retry(text: str) -> topic_pb2.RetryPolicy:
    return topic_pb2.RetryPolicy(**dataclasses.asdict(RetryPolicy.read(text)))


def _retry_text(retry: topic_pb2.RetryPolicy) -> str:
    kind = RetryKind(retry.kind)
    return RetryPolicy(kind, retry.first_ms, retry.longest_ms, retry.factor, tuple(retry.listed_ms)).text()


def _member(member: consumer_pb2.Member) -> MemberInfo:
    return MemberInfo(
        member.client_id,
        member.snode,
        member.language,
        member.client_version,
        tuple(it.topic for it in member.subscriptions),
        member.pushed,
        member.message_model == consumer_pb2.MESSAGE_MODEL_BROADCAST,
        member.room,
        member.since_ms,
    )


def _offsets(offsets: Any) -> tuple[QueueOffset, ...]:
    return tuple(QueueOffset(queue_of(it.queue), it.offset) for it in offsets)


def _client(client: client_pb2.ClientInfo) -> ClientInfo:
    return ClientInfo(
        client.client_id,
        client.session_id,
        client.snode,
        client.peer,
        client.language,
        client.client_version,
        tuple(client.producer_groups),
        tuple(client.consumer_groups),
        client.since_ms,
    )


def _client_queue(queue: session_pb2.RunningQueue) -> ClientQueue:
    return ClientQueue(
        queue.group, queue_of(queue.queue), queue.offset, queue.next_offset, queue.held_messages, queue.locked
    )
