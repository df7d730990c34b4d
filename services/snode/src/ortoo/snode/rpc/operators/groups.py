"""AdminService for clients, groups, their offsets, and limits on requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid, NotFound, OrtooError
from ortoo.common.errors.status import failure_of, rpc_errors
from ortoo.common.grpc.enum_values import check_known, known_or
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import read, write
from ortoo.snode.clients.directory import ClientDirectory, ClientEntry
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.routes import DeliveryMode
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.wire import decode_queue, encode_queue
from ortoo.snode.policy import Policy
from ortoo.snode.policy.flow_control import FlowRule, FlowUnit
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.snode.pull import PullComponents
from ortoo.snode.pull.backlogs import GroupBacklogs
from ortoo.snode.pull.offsets import OffsetTarget
from ortoo.snode.pull.operator_parking import OperatorParking, ParkingRequest
from ortoo.snode.rocketmq.rpc.commands import RocketmqCommands
from ortoo.snode.rpc.conversion import encode_member, visible_member
from ortoo.snode.rpc.operators.explanation.delivery_rows import encode_delivery
from ortoo.snode.topics import TopicComponents
from ortoo.v1 import admin_pb2_grpc, flow_control_pb2, lag_pb2, park_pb2, pull_pb2, session_pb2, topic_pb2, trim_pb2
from ortoo.v1 import client_pb2 as pb

COMMAND_TIMEOUT_MS = 10_000
COMMAND_TIMEOUT_MAX_MS = 60_000
REASON_LENGTH_MAX = 1_024
FORWARD_MARGIN_S = 2.0
"""Additional timeout of a forwarded call."""


@dataclass(kw_only=True, eq=False)
class GroupAdminHandlers(admin_pb2_grpc.AdminServiceServicer):
    """The calls of AdminService for groups and clients."""

    runtime: Runtime
    cluster: ClusterView
    topics: TopicComponents
    pull: PullComponents
    clients: ClientDirectory
    policy: Policy
    rocketmq: RocketmqCommands
    parking: OperatorParking

    async def UpdateGroup(self, request: pb.UpdateGroupRequest, context: Context) -> pb.UpdateGroupResponse:
        """Change some settings of a group, or create it. The change is in force when the call returns.

        Only the changed settings are sent, so that simultaneous changes of other settings are kept.
        """
        check_group_name(request.name, "name")
        changes: dict[str, Any] = {field.name: value for field, value in request.ListFields() if field.name != "name"}
        # `auto_created` is named without a value: from now on the group counts as created by an operator.
        fields = (*changes, "auto_created")
        group = await self.cluster.name_server.put_group(topic_pb2.Group(name=request.name, **changes), fields)
        await self.cluster.watch.wait_for_version(group.version)
        return pb.UpdateGroupResponse(group=group)

    async def DescribeGroup(self, request: pb.DescribeGroupRequest, context: Context) -> pb.DescribeGroupResponse:
        """Describe a group: its settings, its members, and its progress in the topics that the caller may see."""
        check_group_name(request.name, "name")
        group = await self.cluster.name_server.stored_group(request.name)
        members = await self.clients.consumers(request.name)
        topics = await self.visible_topics(request.name)
        backlogs = await self.pull.backlogs.read(request.name)
        progress = [await self._progress(request.name, topic, backlogs) for topic in topics]
        return pb.DescribeGroupResponse(
            group=group,
            members=map(encode_member, members),
            topics=topics,
            progress=[one for one in progress if one is not None],
            retries=write(lag_pb2.LagByState, backlogs.retries),
        )

    async def ListClients(self, request: pb.ListClientsRequest, context: Context) -> pb.ListClientsResponse:
        """The connected clients of all snodes."""
        return pb.ListClientsResponse(clients=map(_encode_client, await self.clients.clients(request.group)))

    async def DescribeClient(self, request: pb.DescribeClientRequest, context: Context) -> pb.DescribeClientResponse:
        """Describe a client: its identity, its queues, and the client's own description of itself."""
        return await self.describe_client(request)

    async def describe_client(self, request: pb.DescribeClientRequest) -> pb.DescribeClientResponse:
        """Describe a client of any snode. Errors: NotFound, Unavailable."""
        entry = await self.clients.find(request.client_id)
        if (other_snode := await self._other_snode(entry, request)) is not None:
            with rpc_errors(f"snode {entry.member.snode}", is_internal=True):
                return await other_snode.DescribeClient(request, timeout=COMMAND_TIMEOUT_MS / 1000 + FORWARD_MARGIN_S)
        owned = self.clients.queues(request.client_id, request.group)
        queues = [write(session_pb2.RunningQueue, one) for one in owned]
        response = pb.DescribeClientResponse(client=_encode_client(entry), queues=queues)
        if request.ask_client:
            describe = session_pb2.Command(describe_running=session_pb2.DescribeRunning(group=request.group))
            try:
                result = await self._call_client(request.client_id, describe)
                response.running.CopyFrom(result.running)
            except OrtooError as error:
                response.failure.CopyFrom(failure_of(error))
        return response

    async def CallClient(self, request: pb.CallClientRequest, context: Context) -> pb.CallClientResponse:
        """Send a command to a client, and return the client's answer."""
        entry = await self.clients.find(request.client_id)
        if (other_snode := await self._other_snode(entry, request)) is not None:
            with rpc_errors(f"snode {entry.member.snode}", is_internal=True):
                return await other_snode.CallClient(request, timeout=COMMAND_TIMEOUT_MAX_MS / 1000 + FORWARD_MARGIN_S)
        return pb.CallClientResponse(result=await self._call_client(request.client_id, request.command))

    async def ListConsumers(self, request: pb.ListConsumersRequest, context: Context) -> pb.ListConsumersResponse:
        """The consumers of a group."""
        check_group_name(request.group, "group")
        consumers = await self.clients.consumers(request.group)
        if not consumers:
            raise NotFound(f"group {request.group} has no consumer now", field="group")
        return pb.ListConsumersResponse(consumers=map(encode_member, consumers))

    async def ListTopicGroups(self, request: pb.ListTopicGroupsRequest, context: Context) -> pb.ListTopicGroupsResponse:
        """The groups that subscribe to a topic, and the groups with offsets in the topic."""
        with_offsets = await self.pull.offset_operations.groups_with_offsets(request.topic)
        return pb.ListTopicGroupsResponse(
            groups=await self.clients.subscribed_groups(request.topic), with_offsets=with_offsets
        )

    async def SetDeliveryMode(self, request: pb.SetDeliveryModeRequest, context: Context) -> pb.SetDeliveryModeResponse:
        """Change the delivery mode of a group for a topic."""
        check_known(request, "mode")
        mode = known_or(DeliveryMode, request.mode, DeliveryMode.UNDECIDED)
        previous = await self.topics.delivery_modes.set_mode(request.group, request.topic, mode, force=request.force)
        return pb.SetDeliveryModeResponse(previous=int(previous))  # type: ignore[arg-type]

    async def ListDeliveryModes(
        self, request: pb.ListDeliveryModesRequest, context: Context
    ) -> pb.ListDeliveryModesResponse:
        """The delivery modes of a group."""
        listed = await self.topics.delivery_modes.list_modes(request.group)
        return pb.ListDeliveryModesResponse(modes=[write(pb.TopicMode, one) for one in listed])

    async def ResetOffsets(self, request: pb.ResetOffsetsRequest, context: Context) -> pb.ResetOffsetsResponse:
        """Move the offsets of a group."""
        moved = await self.pull.offset_operations.reset(
            request.group, request.topic, decode_target(request), force=request.force, dry_run=request.dry_run
        )
        return write(pb.ResetOffsetsResponse, moved)

    async def ParkMessages(
        self, request: park_pb2.ParkMessagesRequest, context: Context
    ) -> park_pb2.ParkMessagesResponse:
        """Park messages that a group cannot finish."""
        if len(request.reason) > REASON_LENGTH_MAX:
            raise Invalid(f"{len(request.reason):,} characters; give at most {REASON_LENGTH_MAX:,}", field="reason")
        queue = decode_queue(request.queue)
        parking = read(
            ParkingRequest, request, queue=queue, offsets=list(request.offsets), operator=PRINCIPAL.get().user
        )
        parked = await self.parking.park(parking)
        deliveries = [
            encode_delivery(queue, one, self.runtime.clock.now_ms(), uses_pop=parked.uses_pop) for one in parked.ranges
        ]
        return park_pb2.ParkMessagesResponse(deliveries=deliveries, more=parked.more, offset=parked.offset)

    async def CloneOffsets(self, request: pb.CloneOffsetsRequest, context: Context) -> pb.CloneOffsetsResponse:
        """Copy the offsets of one group to another."""
        copied = await self.pull.offset_operations.clone(request.from_group, request.to_group, request.topic)
        await self._ensure_cloned_group(request.from_group, request.to_group)
        return pb.CloneOffsetsResponse(offsets=[write(pull_pb2.ConsumerOffset, one) for one in copied])

    async def _ensure_cloned_group(self, from_group: str, to_group: str) -> None:
        """Create the target group with the settings of the source group, unless it exists."""
        if await self._find_group(to_group) is None:
            settings = await self._find_group(from_group) or topic_pb2.Group()
            settings.name, settings.auto_created = to_group, False
            made = await self.cluster.name_server.put_group(settings)
            await self.cluster.watch.wait_for_version(made.version)

    async def DescribeFlowControl(
        self, request: flow_control_pb2.DescribeFlowControlRequest, context: Context
    ) -> flow_control_pb2.DescribeFlowControlResponse:
        """The limits on calls at this snode."""
        flow = self.policy.flow_control
        return flow_control_pb2.DescribeFlowControlResponse(
            rules=_encode_rules(flow.rules), file=self.policy.flow_control_file.path, refused=flow.refused_counts
        )

    async def UpdateFlowControl(
        self, request: flow_control_pb2.UpdateFlowControlRequest, context: Context
    ) -> flow_control_pb2.UpdateFlowControlResponse:
        """Change the limits on calls at this snode, until it restarts or its flow-control file changes."""
        self.policy.flow_control.replace([_decode_rule(rule) for rule in request.rules])
        return flow_control_pb2.UpdateFlowControlResponse(rules=_encode_rules(self.policy.flow_control.rules))

    async def _topics_of(self, group: str) -> list[str]:
        """The topics that the group subscribes to now, or has consumed."""
        subscribed = {topic for member in await self.clients.consumers(group) for topic in member.topics}
        consumed = {one.topic for one in await self.topics.delivery_modes.list_modes(group)}
        return sorted(subscribed | consumed)

    async def visible_topics(self, group: str) -> list[str]:
        """The topics that the group subscribes to now, or has consumed, and that the caller may see."""
        return list(filter(PRINCIPAL.get().may_see, await self._topics_of(group)))

    async def check_group_exists(self, name: str) -> None:
        """Refuse a group that was not created and has never consumed. Errors: NotFound."""
        if await self._find_group(name) is None and not await self._topics_of(name):
            raise NotFound(f"there is no group {name!r}; `ortoo group list` lists the groups", field="group")

    async def _find_group(self, name: str) -> topic_pb2.Group | None:
        """A group at the name server; None if it does not exist there. Errors: other errors of the name server."""
        try:
            return await self.cluster.name_server.stored_group(name)
        except NotFound:
            return None

    async def _progress(self, group: str, topic: str, backlogs: GroupBacklogs) -> pb.TopicProgress | None:
        """The progress of a group in a topic; None if the topic was deleted while the group still subscribes to it."""
        try:
            lag = await self.pull.lag.lag_of_available(group, topic, backlogs)
        except NotFound:
            return None
        return pb.TopicProgress(
            topic=topic,
            offsets=[
                pull_pb2.ConsumerOffset(queue=encode_queue(one.queue), offset=one.committed_offset)
                for one in lag.queues
            ],
            lag_messages=sum(one.messages for one in lag.queues),
            by_state=write(lag_pb2.LagByState, lag.backlog),
        )

    async def _call_client(self, client_id: str, command: session_pb2.Command) -> session_pb2.CommandResult:
        if self.rocketmq.has_client(client_id):
            return await self.rocketmq.call(client_id, command)
        timeout_ms = min(command.timeout_ms or COMMAND_TIMEOUT_MS, COMMAND_TIMEOUT_MAX_MS)
        numbered = session_pb2.Command()
        numbered.CopyFrom(command)
        numbered.command_id, numbered.timeout_ms = self.runtime.randomness.id_text(), timeout_ms
        result = await self.clients.call(client_id, numbered.command_id, numbered, timeout_ms / 1000)
        assert isinstance(result, session_pb2.CommandResult)
        return result

    async def _other_snode(
        self, entry: ClientEntry, request: pb.DescribeClientRequest | pb.CallClientRequest
    ) -> admin_pb2_grpc.AdminServiceStub | None:
        """A stub of another snode that has the client, or None. A forwarded request is not forwarded again."""
        if self.clients.is_local(entry) or request.local_only:
            return None
        request.local_only = True
        channel = self.runtime.channels.channel_to(self.clients.address_of(entry))
        return admin_pb2_grpc.AdminServiceStub(await self.policy.forwarding_channel(channel))


def _encode_client(entry: ClientEntry) -> pb.ClientInfo:
    groups = {"producer_groups": entry.producer_groups, "consumer_groups": entry.consumer_groups}
    member = visible_member(entry.member)
    return write(pb.ClientInfo, member, zone=member.room, connected_at_ms=member.since_ms, **groups)


def decode_target(request: pb.ResetOffsetsRequest | trim_pb2.TrimTopicRequest) -> OffsetTarget:
    """The position that a request names. Errors: Invalid if there is none."""
    match request.WhichOneof("target"):
        case "time_ms":
            return OffsetTarget(time_ms=request.time_ms)
        case "offset":
            return OffsetTarget(offset=request.offset)
        case "offsets":
            return OffsetTarget(offsets={decode_queue(one.queue): one.offset for one in request.offsets.starts})
    raise Invalid("is missing; give time_ms, offset or offsets", field="target")


def _decode_rule(rule: flow_control_pb2.FlowRule) -> FlowRule:
    check_known(rule, "unit", prefix="rules")
    unit = FlowUnit.BYTES if rule.unit == flow_control_pb2.FLOW_UNIT_BYTES else FlowUnit.REQUESTS
    return read(FlowRule, rule, unit=unit)


def _encode_rules(rules: Sequence[FlowRule]) -> list[flow_control_pb2.FlowRule]:
    return [write(flow_control_pb2.FlowRule, rule) for rule in rules]
