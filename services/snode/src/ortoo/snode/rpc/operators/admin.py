"""AdminService: contents of queues, schedules, access, the cluster. Other modules of this package have other calls."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from ortoo.common.cluster.names import TOPICS_MAX, check_group_name
from ortoo.common.errors import Invalid, NotFound
from ortoo.common.filters.message_filter import compile_filter
from ortoo.common.grpc.enum_values import check_known
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import read, write
from ortoo.common.records.batch import open_batch
from ortoo.snode.cluster.wire import decode_message, encode_queue, encode_topic
from ortoo.snode.enodes.link import ScheduleChange, StoredSchedule
from ortoo.snode.policy.access_rules import READING, Grant
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.snode.pull.message_search import SearchRequest
from ortoo.snode.pull.queue_reader import PlacedMessage
from ortoo.snode.rpc.conversion import body_text
from ortoo.snode.rpc.operators.audit import AuditAdminHandlers
from ortoo.snode.rpc.operators.groups import GroupAdminHandlers, decode_target
from ortoo.snode.rpc.operators.replicas import ReplicaAdminHandlers
from ortoo.snode.rpc.operators.sinks import SinkAdminHandlers
from ortoo.snode.rpc.streams import LongCalls
from ortoo.snode.send import SendComponents
from ortoo.snode.send.schedules import PlacedSchedule
from ortoo.snode.send.transactions import OpenTransaction
from ortoo.v1 import access_pb2, lag_pb2, record_pb2, schedule_pb2, topic_pb2, trim_pb2
from ortoo.v1 import admin_pb2 as pb

NAME = pb.DESCRIPTOR.services_by_name["AdminService"].full_name


@dataclass(kw_only=True, eq=False)
class AdminService(ReplicaAdminHandlers, GroupAdminHandlers, AuditAdminHandlers, SinkAdminHandlers):
    """The service for operators."""

    sending: SendComponents
    long_calls: LongCalls

    async def DescribeTopic(self, request: pb.DescribeTopicRequest, context: Context) -> pb.DescribeTopicResponse:
        """Describe a topic, with the stored ranges of its queues."""
        topic = await self.cluster.watch.topic(request.name)
        ranges = await self.pull.reader.queue_ranges(topic)
        queues = [write(pb.TopicQueue, held, enode=queue.enode) for queue, held in ranges.items()]
        return pb.DescribeTopicResponse(topic=encode_topic(topic), queues=queues)

    async def DescribeTopics(self, request: pb.DescribeTopicsRequest, context: Context) -> pb.DescribeTopicsResponse:
        """Many topics with the stored ranges of their queues. Topics that do not exist are left out."""
        topics = []
        for name in request.names:
            with contextlib.suppress(NotFound):
                topics.append(await self.cluster.watch.topic(name))
        described = [
            pb.DescribeTopicResponse(
                topic=encode_topic(topic),
                queues=[write(pb.TopicQueue, held, enode=queue.enode) for queue, held in ranges.items()],
            )
            for topic, ranges in zip(topics, await self.pull.reader.queue_ranges_of(topics), strict=True)
        ]
        return pb.DescribeTopicsResponse(topics=described)

    async def DescribeAccess(
        self, request: access_pb2.DescribeAccessRequest, context: Context
    ) -> access_pb2.DescribeAccessResponse:
        """The user of this call, and its permissions on some topics and groups."""
        caller = PRINCIPAL.get()
        return access_pb2.DescribeAccessResponse(
            user=caller.user,
            admin=caller.is_unrestricted,
            observer=caller.is_observer,
            topics=_granted(request.topics, caller.grant_on_topic, "topics"),
            groups=_granted(request.groups, caller.grant_on_group, "groups"),
        )

    async def TrimTopic(self, request: trim_pb2.TrimTopicRequest, context: Context) -> trim_pb2.TrimTopicResponse:
        """Make the oldest messages of a topic unreadable."""
        user = PRINCIPAL.get().user or context.peer()
        target = decode_target(request)
        trimmed = await self.pull.trims.trim(request.topic, target, user=user, dry_run=request.dry_run)
        return trim_pb2.TrimTopicResponse(queues=[write(trim_pb2.TrimmedQueue, one) for one in trimmed])

    async def Tail(self, request: pb.TailRequest, context: Context) -> AsyncIterator[pb.TailResponse]:
        """Send messages of a topic, with readable bodies."""
        sent_count = 0
        message_filter = compile_filter(request.tag_expression, request.sql_expression)
        with self.long_calls.track() as memory:
            messages = self.pull.reader.tail(
                request.topic,
                memory,
                from_beginning=request.from_beginning,
                follow=request.follow,
                message_filter=message_filter,
            )
            async for message in messages:
                yield _encode_tailed(message)
                sent_count += 1
                if sent_count == request.messages_max:
                    return

    async def FindMessages(
        self, request: pb.AdminFindMessagesRequest, context: Context
    ) -> pb.AdminFindMessagesResponse:
        """Find messages by key or id."""
        found = await self.pull.search.find(request.topic, read(SearchRequest, request))
        return write(pb.AdminFindMessagesResponse, found, messages=map(_encode_tailed, found.messages))

    async def DescribeLag(self, request: pb.DescribeLagRequest, context: Context) -> pb.DescribeLagResponse:
        """The lag of a group."""
        lag = await self.pull.lag.lag_of_available(request.group, request.topic)
        if all(one.committed_offset < 0 for one in lag.queues):
            await self.check_group_exists(request.group)
        return pb.DescribeLagResponse(
            queues=[write(pb.QueueLag, one, lag_messages=one.messages) for one in lag.queues],
            lag_messages=lag.messages,
            by_state=write(lag_pb2.LagByState, lag.by_state),
            unreachable_enodes=lag.unreachable_enodes,
        )

    async def ListLagHistory(
        self, request: lag_pb2.ListLagHistoryRequest, context: Context
    ) -> lag_pb2.ListLagHistoryResponse:
        """The lag of a group over the last hour, in one topic or in those that the caller may see."""
        check_group_name(request.group, "group")
        if request.topic:
            topics = [(await self.cluster.watch.topic(request.topic)).name]
        else:
            topics = await self.visible_topics(request.group)
        if not topics:
            await self.check_group_exists(request.group)
        found = await self.pull.lag_history.read(request.group, topics, request.from_ms)
        return lag_pb2.ListLagHistoryResponse(
            samples=[write(lag_pb2.LagSample, one) for one in found.samples],
            interval_ms=found.interval_ms,
            unreachable_enodes=found.unreachable_enodes,
            is_partial=found.is_partial,
        )

    async def ListDelayedMessages(
        self, request: pb.ListDelayedMessagesRequest, context: Context
    ) -> pb.ListDelayedMessagesResponse:
        """The delayed messages of a topic, sorted by time."""
        listed = await self.sending.delayed.list_messages(request.topic, request.from_ms, request.limit)
        return pb.ListDelayedMessagesResponse(messages=[write(pb.DelayedMessage, one) for one in listed])

    async def CreateSchedule(
        self, request: schedule_pb2.CreateScheduleRequest, context: Context
    ) -> schedule_pb2.CreateScheduleResponse:
        """Create or replace a schedule."""
        check_known(request, "catch_up")
        asked = StoredSchedule(
            topic_id=0,
            queue_id=0,
            name=request.name,
            cron=request.cron,
            timezone=request.timezone,
            period_ms=request.period_ms,
            catch_up=request.catch_up,
        )
        message = decode_message(request.message)
        created = await self.sending.schedules.create(request.topic, asked, message, replaces=request.replace)
        return schedule_pb2.CreateScheduleResponse(schedule=_encode_schedule(created))

    async def ListSchedules(
        self, request: schedule_pb2.ListSchedulesRequest, context: Context
    ) -> schedule_pb2.ListSchedulesResponse:
        """The schedules of a topic, or of all topics."""
        listed, unreachable = await self.sending.schedules.list_all(request.topic, request.limit)
        return schedule_pb2.ListSchedulesResponse(
            schedules=map(_encode_schedule, listed), unreachable_enodes=unreachable
        )

    async def DescribeSchedule(
        self, request: schedule_pb2.DescribeScheduleRequest, context: Context
    ) -> schedule_pb2.DescribeScheduleResponse:
        """One schedule with its message."""
        found = await self.sending.schedules.describe(request.topic, request.name)
        answer = schedule_pb2.DescribeScheduleResponse(schedule=_encode_schedule(found))
        assert found.stored.batch is not None
        (message,) = open_batch(found.stored.batch)
        answer.schedule.message.CopyFrom(write(record_pb2.Message, message))
        return answer

    async def SuspendSchedule(
        self, request: schedule_pb2.SuspendScheduleRequest, context: Context
    ) -> schedule_pb2.SuspendScheduleResponse:
        """Suspend a schedule."""
        await self.sending.schedules.change(request.topic, request.name, ScheduleChange.SUSPEND)
        return schedule_pb2.SuspendScheduleResponse()

    async def ResumeSchedule(
        self, request: schedule_pb2.ResumeScheduleRequest, context: Context
    ) -> schedule_pb2.ResumeScheduleResponse:
        """Resume a schedule."""
        await self.sending.schedules.change(request.topic, request.name, ScheduleChange.RESUME)
        return schedule_pb2.ResumeScheduleResponse()

    async def DeleteSchedule(
        self, request: schedule_pb2.DeleteScheduleRequest, context: Context
    ) -> schedule_pb2.DeleteScheduleResponse:
        """Delete a schedule."""
        await self.sending.schedules.change(request.topic, request.name, ScheduleChange.DELETE)
        return schedule_pb2.DeleteScheduleResponse()

    async def ListTransactions(
        self, request: pb.ListTransactionsRequest, context: Context
    ) -> pb.ListTransactionsResponse:
        """The open transactions, the oldest first."""
        listed = await self.sending.transactions.list_open(
            topic_name=request.topic,
            producer_group=request.producer_group,
            parked_only=request.parked_only,
            limit=request.limit,
        )
        return pb.ListTransactionsResponse(transactions=map(_encode_transaction, listed))

    async def ResumeTransaction(
        self, request: pb.ResumeTransactionRequest, context: Context
    ) -> pb.ResumeTransactionResponse:
        """Resume the checks of a parked transaction."""
        await self.sending.transactions.resume(request.transaction_id)
        return pb.ResumeTransactionResponse()

    async def DescribeCluster(self, request: pb.DescribeClusterRequest, context: Context) -> pb.DescribeClusterResponse:
        """The processes of the cluster, and whether callers of enodes can bypass the access rules of this snode."""
        directory, are_closed = self.cluster.directory, self.runtime.settings.closes_inner_ports
        return pb.DescribeClusterResponse(
            enodes=[write(topic_pb2.Enode, one) for one in directory.expected_enodes()],
            snodes=[write(topic_pb2.Snode, one) for one in directory.snodes()],
            version=directory.version,
            now_ms=self.runtime.clock.now_ms(),
            inner_ports_open=self.policy.access is not None and not are_closed,
        )


def _encode_transaction(one: OpenTransaction) -> pb.OpenTransaction:
    where = {"transaction_id": one.transaction_id, "queue": encode_queue(one.queue)}
    return write(pb.OpenTransaction, one.half, **where, started_at_ms=one.half.stored_at_ms)


def _encode_tailed(placed: PlacedMessage) -> pb.TailResponse:
    return write(pb.TailResponse, placed, body_text=body_text(placed.message))


def _encode_schedule(one: PlacedSchedule) -> schedule_pb2.Schedule:
    queue = encode_queue(one.queue)
    return write(schedule_pb2.Schedule, one.stored, topic=one.queue.topic, queue=queue, message=None)


def _granted(names: Sequence[str], grant_on: Callable[[str], Grant], field: str) -> list[access_pb2.GrantedAccess]:
    """The permissions on each of `names`. Errors: Invalid for too many names."""
    if len(names) > TOPICS_MAX:
        raise Invalid(f"{len(names)} names; give at most {TOPICS_MAX:,}", field=field)
    grants = map(grant_on, names)
    return [
        access_pb2.GrantedAccess(publish=Grant.PUB in one, subscribe=Grant.SUB in one, browse=bool(one & READING))
        for one in grants
    ]
