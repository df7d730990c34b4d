"""AdminService about clients, groups, their offsets, and limits on requests."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import grpc

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid, NotFound, OrtooError
from ortoo.common.errors.status import failure_of, rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.snode.clients.directory import ClientDirectory, ClientEntry, OwnedQueue
from ortoo.snode.cluster.name_server import NameServer
from ortoo.snode.cluster.routes import DeliveryMode, Group
from ortoo.snode.cluster.wire import group_to, queue_of, queue_to, retry_of
from ortoo.snode.policy.flow_control import FlowControl, FlowRule, FlowUnit
from ortoo.snode.policy.watched_file import WatchedFile
from ortoo.snode.pull.lag import Lag
from ortoo.snode.pull.offsets import OffsetMoves, ResetTarget
from ortoo.snode.rocketmq.rpc.commands import RocketmqCommands
from ortoo.snode.rpc.members import member_to
from ortoo.snode.rpc.pulls import offset_to
from ortoo.snode.topics.arrival import TopicArrival
from ortoo.snode.topics.group_settings import DeliveryModes, TopicMode
from ortoo.v1 import admin_pb2_grpc, client_pb2, flow_control_pb2, pull_pb2, session_pb2

Context = grpc.aio.ServicerContext[Any, Any]
COMMAND_TIMEOUT_MS = 10_000
COMMAND_TIMEOUT_MAX_MS = 60_000
FORWARD_S = 2.0
"""What another snode gets on top of what its client gets."""
CHANGES = (
    "consume_enabled",
    "broadcast_enabled",
    "notify_members_changed",
    "slow_consumer_threshold_messages",
    "slow_consumer_grace_ms",
    "unacknowledged_bytes_max",
    "attempts_max",
    "in_flight_max",
    "park_expired",
)


@dataclasses.dataclass(frozen=True, slots=True)
class GroupParts:
    """What these methods stand on."""

    name_server: NameServer
    arrival: TopicArrival
    clients: ClientDirectory
    moves: OffsetMoves
    modes: DeliveryModes
    lag: Lag
    flow: FlowControl
    flow_file: WatchedFile
    channels: Channels
    rocketmq: RocketmqCommands


class GroupAdmin(admin_pb2_grpc.AdminServiceServicer):
    """The part of AdminService that is about groups and clients."""

    def __init__(self, parts: GroupParts) -> None:
        self._parts = parts

    async def UpdateGroup(
        self, request: client_pb2.UpdateGroupRequest, context: Context
    ) -> client_pb2.UpdateGroupResponse:
        """Change some settings of a group, or create it; the change is in force when this returns."""
        check_group_name(request.name, "name")
        try:
            group = await self._parts.name_server.get_group(request.name)
        except NotFound:
            group = Group(request.name)
        changes = {name: getattr(request, name) for name in CHANGES if request.HasField(name)}  # type: ignore[arg-type]
        if request.HasField("retry"):
            changes["retry"] = retry_of(request.retry)
        group = await self._parts.name_server.put_group(dataclasses.replace(group, **changes))
        await self._parts.arrival.version(group.version)
        return client_pb2.UpdateGroupResponse(group=group_to(group))

    async def DescribeGroup(
        self, request: client_pb2.DescribeGroupRequest, context: Context
    ) -> client_pb2.DescribeGroupResponse:
        """One group: settings, members, progress."""
        check_group_name(request.name, "name")
        group = await self._parts.name_server.get_group(request.name)
        members = self._parts.clients.consumers(request.name)
        topics = sorted({topic for member in members for topic in member.topics})
        return client_pb2.DescribeGroupResponse(
            group=group_to(group),
            members=map(member_to, members),
            topics=topics,
            progress=[await self._progress(request.name, topic) for topic in topics],
        )

    async def ListClients(
        self, request: client_pb2.ListClientsRequest, context: Context
    ) -> client_pb2.ListClientsResponse:
        """The clients that are connected, to whichever snode."""
        return client_pb2.ListClientsResponse(clients=map(_client, self._parts.clients.clients(request.group)))

    async def DescribeClient(
        self, request: client_pb2.DescribeClientRequest, context: Context
    ) -> client_pb2.DescribeClientResponse:
        """One client: who it is, its queues, and what it says about itself."""
        clients = self._parts.clients
        entry = clients.find(request.client_id)
        if not clients.is_here(entry) and not request.local_only:
            request.local_only = True
            stub = self._other(entry)
            with rpc_errors(f"snode {entry.snode}"):
                return await stub.DescribeClient(request, timeout=COMMAND_TIMEOUT_MS / 1000 + FORWARD_S)
        queues = clients.queues(request.client_id, request.group)
        response = client_pb2.DescribeClientResponse(client=_client(entry), queues=map(_queue, queues))
        if request.ask_client:
            describe = session_pb2.Command(describe_running=session_pb2.DescribeRunning(group=request.group))
            try:
                result = await self._call(request.client_id, describe)
                response.running.CopyFrom(result.running)
            except OrtooError as error:
                response.failure.CopyFrom(failure_of(error))
        return response

    async def CallClient(
        self, request: client_pb2.CallClientRequest, context: Context
    ) -> client_pb2.CallClientResponse:
        """Make a client do something and answer what it said."""
        clients = self._parts.clients
        entry = clients.find(request.client_id)
        if not clients.is_here(entry) and not request.local_only:
            request.local_only = True
            stub = self._other(entry)
            with rpc_errors(f"snode {entry.snode}"):
                return await stub.CallClient(request, timeout=COMMAND_TIMEOUT_MAX_MS / 1000 + FORWARD_S)
        return client_pb2.CallClientResponse(result=await self._call(request.client_id, request.command))

    async def ListConsumers(
        self, request: client_pb2.ListConsumersRequest, context: Context
    ) -> client_pb2.ListConsumersResponse:
        """The consumers of a group."""
        check_group_name(request.group, "group")
        consumers = self._parts.clients.consumers(request.group)
        if not consumers:
            raise NotFound(f"group {request.group} has no consumer now", field="group")
        return client_pb2.ListConsumersResponse(consumers=map(member_to, consumers))

    async def ListTopicGroups(
        self, request: client_pb2.ListTopicGroupsRequest, context: Context
    ) -> client_pb2.ListTopicGroupsResponse:
        """The groups that want a topic, and those that have offsets in it."""
        with_offsets = await self._parts.moves.groups(request.topic)
        return client_pb2.ListTopicGroupsResponse(
            groups=self._parts.clients.wanting(request.topic), with_offsets=with_offsets
        )

    async def SetDeliveryMode(
        self, request: client_pb2.SetDeliveryModeRequest, context: Context
    ) -> client_pb2.SetDeliveryModeResponse:
        """Change how a group consumes a topic."""
        mode = mode_of(request.mode)
        before = await self._parts.modes.set(request.group, request.topic, mode, force=request.force)
        return client_pb2.SetDeliveryModeResponse(before=before.value)  # type: ignore[arg-type]

    async def ListDeliveryModes(
        self, request: client_pb2.ListDeliveryModesRequest, context: Context
    ) -> client_pb2.ListDeliveryModesResponse:
        """How a group consumes its topics."""
        listed = await self._parts.modes.listed(request.group)
        return client_pb2.ListDeliveryModesResponse(modes=map(_mode, listed))

    async def ResetOffsets(
        self, request: client_pb2.ResetOffsetsRequest, context: Context
    ) -> client_pb2.ResetOffsetsResponse:
        """Move the offsets of a group."""
        moved = await self._parts.moves.reset(request.group, request.topic, _target(request), force=request.force)
        return client_pb2.ResetOffsetsResponse(offsets=map(offset_to, moved))

    async def CloneOffsets(
        self, request: client_pb2.CloneOffsetsRequest, context: Context
    ) -> client_pb2.CloneOffsetsResponse:
        """Copy the offsets of one group to another."""
        copied = await self._parts.moves.clone(request.from_group, request.to_group, request.topic)
        return client_pb2.CloneOffsetsResponse(offsets=map(offset_to, copied))

    async def DescribeFlowControl(
        self, request: flow_control_pb2.DescribeFlowControlRequest, context: Context
    ) -> flow_control_pb2.DescribeFlowControlResponse:
        """The limits on requests of this snode."""
        flow = self._parts.flow
        return flow_control_pb2.DescribeFlowControlResponse(
            rules=_rules(flow.rules), file=self._parts.flow_file.path, refused=flow.refused
        )

    async def UpdateFlowControl(
        self, request: flow_control_pb2.UpdateFlowControlRequest, context: Context
    ) -> flow_control_pb2.UpdateFlowControlResponse:
        """Change them, until the snode restarts or its file changes."""
        self._parts.flow.replace([_rule(rule) for rule in request.rules])
        return flow_control_pb2.UpdateFlowControlResponse(rules=_rules(self._parts.flow.rules))

    async def _progress(self, group: str, topic: str) -> client_pb2.TopicProgress:
        lags = await self._parts.lag.of(group, topic)
        return client_pb2.TopicProgress(
            topic=topic,
            offsets=[pull_pb2.ConsumerOffset(queue=queue_to(one.queue), offset=one.committed_offset) for one in lags],
            lag_messages=sum(one.messages for one in lags),
        )

    async def _call(self, client_id: str, command: session_pb2.Command) -> session_pb2.CommandResult:
        if self._parts.rocketmq.knows(client_id):
            return await self._parts.rocketmq.call(client_id, command)
        timeout_ms = min(command.timeout_ms or COMMAND_TIMEOUT_MS, COMMAND_TIMEOUT_MAX_MS)

        def made(command_id: str) -> session_pb2.Command:
            numbered = session_pb2.Command()
            numbered.CopyFrom(command)
            numbered.command_id, numbered.timeout_ms = command_id, timeout_ms
            return numbered

        result = await self._parts.clients.call(client_id, made, timeout_ms / 1000)
        assert isinstance(result, session_pb2.CommandResult)
        return result

    def _other(self, entry: ClientEntry) -> admin_pb2_grpc.AdminServiceStub:
        return admin_pb2_grpc.AdminServiceStub(self._parts.channels.to(self._parts.clients.address_of(entry)))


def mode_of(number: int) -> DeliveryMode:
    """A delivery mode, read. Errors: Invalid for one that this version does not know."""
    try:
        return DeliveryMode(number)
    except ValueError:
        raise Invalid(f"{number} is no delivery mode that this version knows", field="mode") from None


def _mode(one: TopicMode) -> client_pb2.TopicMode:
    return client_pb2.TopicMode(topic=one.topic, enode=one.enode, mode=one.mode.value)  # type: ignore[arg-type]


def _client(entry: ClientEntry) -> client_pb2.ClientInfo:
    return client_pb2.ClientInfo(**dataclasses.asdict(entry))


def _queue(owned: OwnedQueue) -> session_pb2.RunningQueue:
    return session_pb2.RunningQueue(
        group=owned.group,
        queue=queue_to(owned.queue),
        offset=owned.acknowledged,
        next_offset=owned.sent_offset,
        held_messages=owned.held_messages,
        held_bytes=owned.held_bytes,
        locked=owned.locked,
    )


def _target(request: client_pb2.ResetOffsetsRequest) -> ResetTarget:
    match request.WhichOneof("target"):
        case "time_ms":
            return ResetTarget(time_ms=request.time_ms)
        case "offset":
            return ResetTarget(offset=request.offset)
        case "offsets":
            return ResetTarget(offsets={queue_of(one.queue): one.offset for one in request.offsets.starts})
    raise Invalid("no target; give time_ms, offset or offsets", field="target")


def _rule(rule: flow_control_pb2.FlowRule) -> FlowRule:
    unit = FlowUnit.BYTES if rule.unit == flow_control_pb2.FLOW_UNIT_BYTES else FlowUnit.REQUESTS
    return FlowRule(unit, rule.per_second, rule.method, rule.topic)


def _rules(rules: Sequence[FlowRule]) -> list[flow_control_pb2.FlowRule]:
    return [
        flow_control_pb2.FlowRule(
            unit=rule.unit.value,  # type: ignore[arg-type]
            method=rule.method,
            topic=rule.topic,
            per_second=rule.per_second,
        )
        for rule in rules
    ]
