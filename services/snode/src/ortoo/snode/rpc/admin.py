"""AdminService: what belongs to the name server goes there, what lies in queues is read from the enodes."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from ortoo.common.errors.status import rpc_errors
from ortoo.common.process.clock import Clock
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.name_server import CALL_TIMEOUT_S, NameServer
from ortoo.snode.cluster.wire import enode_to, message_to, queue_to, snode_to, topic_of, topic_to
from ortoo.snode.filters.selection import compile_filter
from ortoo.snode.pull.lag import Lag
from ortoo.snode.pull.reading import MessageSearch, PlacedMessage, Reading, SearchRequest
from ortoo.snode.rpc.admin_groups import GroupAdmin, GroupParts
from ortoo.snode.rpc.long_calls import LongCalls
from ortoo.snode.send.delayed import Delayed
from ortoo.snode.send.transactions import OpenTransaction, Transactions
from ortoo.snode.topics.arrival import TopicArrival
from ortoo.v1 import admin_pb2, namesrv_pb2

NAME = admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name
Context = grpc.aio.ServicerContext[Any, Any]


class AdminService(GroupAdmin):
    """What operators do."""

    def __init__(
        self,
        directory: Directory,
        name_server: NameServer,
        arrival: TopicArrival,
        reading: Reading,
        search: MessageSearch,
        lag: Lag,
        delayed: Delayed,
        transactions: Transactions,
        long_calls: LongCalls,
        groups: GroupParts,
        clock: Clock,
    ) -> None:
        super().__init__(groups)
        self._clock = clock
        self._directory = directory
        self._name_server = name_server
        self._arrival = arrival
        self._reading = reading
        self._search = search
        self._lag = lag
        self._delayed = delayed
        self._transactions = transactions
        self._long_calls = long_calls

    async def CreateTopic(
        self, request: namesrv_pb2.CreateTopicRequest, context: Context
    ) -> namesrv_pb2.CreateTopicResponse:
        """Create a topic; it can be used when this returns."""
        with rpc_errors(self._name_server.peer):
            answer = await self._name_server.stub.CreateTopic(request, timeout=CALL_TIMEOUT_S)
        await self._arrival.of(topic_of(answer.topic))
        return answer

    async def UpdateTopic(
        self, request: namesrv_pb2.UpdateTopicRequest, context: Context
    ) -> namesrv_pb2.UpdateTopicResponse:
        """Change a topic; the change is in force when this returns."""
        with rpc_errors(self._name_server.peer):
            answer = await self._name_server.stub.UpdateTopic(request, timeout=CALL_TIMEOUT_S)
        await self._arrival.of(topic_of(answer.topic))
        return answer

    async def DeleteTopic(
        self, request: namesrv_pb2.DeleteTopicRequest, context: Context
    ) -> namesrv_pb2.DeleteTopicResponse:
        """Delete a topic and its messages."""
        with rpc_errors(self._name_server.peer):
            answer = await self._name_server.stub.DeleteTopic(request, timeout=CALL_TIMEOUT_S)
        await self._arrival.gone(request.name)
        return answer

    async def ListTopics(
        self, request: namesrv_pb2.ListTopicsRequest, context: Context
    ) -> namesrv_pb2.ListTopicsResponse:
        """All topics, by name."""
        return namesrv_pb2.ListTopicsResponse(topics=map(topic_to, self._directory.topics()))

    async def DescribeTopic(
        self, request: admin_pb2.DescribeTopicRequest, context: Context
    ) -> admin_pb2.DescribeTopicResponse:
        """One topic with what its queues hold."""
        topic = await self._arrival.topic(request.name)
        ranges = await self._reading.queue_ranges(topic)
        return admin_pb2.DescribeTopicResponse(
            topic=topic_to(topic),
            queues=[
                admin_pb2.TopicQueue(
                    enode=q.enode, queue_id=q.queue_id, begin_offset=r.begin_offset, end_offset=r.end_offset
                )
                for q, r in ranges.items()
            ],
        )

    async def PutGroup(self, request: namesrv_pb2.PutGroupRequest, context: Context) -> namesrv_pb2.PutGroupResponse:
        """Create a group or change it."""
        with rpc_errors(self._name_server.peer):
            answer = await self._name_server.stub.PutGroup(request, timeout=CALL_TIMEOUT_S)
        await self._arrival.version(answer.group.version)
        return answer

    async def DeleteGroup(
        self, request: namesrv_pb2.DeleteGroupRequest, context: Context
    ) -> namesrv_pb2.DeleteGroupResponse:
        """Delete a group."""
        with rpc_errors(self._name_server.peer):
            return await self._name_server.stub.DeleteGroup(request, timeout=CALL_TIMEOUT_S)

    async def ListGroups(
        self, request: namesrv_pb2.ListGroupsRequest, context: Context
    ) -> namesrv_pb2.ListGroupsResponse:
        """All groups, by name."""
        with rpc_errors(self._name_server.peer):
            return await self._name_server.stub.ListGroups(request, timeout=CALL_TIMEOUT_S)

    async def PutUser(self, request: namesrv_pb2.PutUserRequest, context: Context) -> namesrv_pb2.PutUserResponse:
        """Create or change a user."""
        with rpc_errors(self._name_server.peer):
            return await self._name_server.stub.PutUser(request, timeout=CALL_TIMEOUT_S)

    async def DeleteUser(
        self, request: namesrv_pb2.DeleteUserRequest, context: Context
    ) -> namesrv_pb2.DeleteUserResponse:
        """Delete a user."""
        with rpc_errors(self._name_server.peer):
            return await self._name_server.stub.DeleteUser(request, timeout=CALL_TIMEOUT_S)

    async def ListUsers(self, request: namesrv_pb2.ListUsersRequest, context: Context) -> namesrv_pb2.ListUsersResponse:
        """All users, without their secrets."""
        with rpc_errors(self._name_server.peer):
            return await self._name_server.stub.ListUsers(request, timeout=CALL_TIMEOUT_S)

    async def Tail(self, request: admin_pb2.TailRequest, context: Context) -> AsyncIterator[admin_pb2.TailResponse]:
        """Messages of a topic as text-friendly records."""
        given = 0
        wanted = compile_filter(request.tag_expression, request.sql_expression)
        messages = self._reading.tail(
            request.topic, from_first=request.from_first, follow=request.follow, wanted=wanted
        )
        with self._long_calls.running():
            async for message in messages:
                yield _tailed(message)
                given += 1
                if given == request.messages_max:
                    return

    async def FindMessages(
        self, request: admin_pb2.AdminFindMessagesRequest, context: Context
    ) -> admin_pb2.AdminFindMessagesResponse:
        """Messages with a key or an id."""
        wish = SearchRequest(request.key, request.message_id, request.begin_ms, request.end_ms, request.limit)
        found = await self._search.find(request.topic, wish)
        return admin_pb2.AdminFindMessagesResponse(messages=map(_tailed, found.messages), enodes_away=found.enodes_away)

    async def DescribeLag(
        self, request: admin_pb2.DescribeLagRequest, context: Context
    ) -> admin_pb2.DescribeLagResponse:
        """How far a group is behind."""
        queues = await self._lag.of(request.group, request.topic)
        return admin_pb2.DescribeLagResponse(
            queues=[
                admin_pb2.QueueLag(
                    queue=queue_to(item.queue),
                    committed_offset=item.committed_offset,
                    end_offset=item.end_offset,
                    lag_messages=item.messages,
                )
                for item in queues
            ],
            lag_messages=sum(item.messages for item in queues),
        )

    async def ListDelayedMessages(
        self, request: admin_pb2.ListDelayedMessagesRequest, context: Context
    ) -> admin_pb2.ListDelayedMessagesResponse:
        """The delayed messages of a topic, by time."""
        listed = await self._delayed.listed(request.topic, request.from_ms, request.limit)
        return admin_pb2.ListDelayedMessagesResponse(
            messages=[
                admin_pb2.DelayedMessage(
                    message_id=one.message_id,
                    recall_handle=one.recall_handle,
                    queue=queue_to(one.queue),
                    deliver_at_ms=one.deliver_at_ms,
                )
                for one in listed
            ]
        )

    async def ListTransactions(
        self, request: admin_pb2.ListTransactionsRequest, context: Context
    ) -> admin_pb2.ListTransactionsResponse:
        """Open transactions, the oldest first."""
        listed = await self._transactions.listed(
            topic_name=request.topic,
            producer_group=request.producer_group,
            parked_only=request.parked_only,
            limit=request.limit,
        )
        return admin_pb2.ListTransactionsResponse(transactions=map(_transaction, listed))

    async def ResumeTransaction(
        self, request: admin_pb2.ResumeTransactionRequest, context: Context
    ) -> admin_pb2.ResumeTransactionResponse:
        """Check a parked transaction again."""
        await self._transactions.resume(request.transaction_id)
        return admin_pb2.ResumeTransactionResponse()

    async def DescribeCluster(
        self, request: admin_pb2.DescribeClusterRequest, context: Context
    ) -> admin_pb2.DescribeClusterResponse:
        """The processes of the cluster."""
        return admin_pb2.DescribeClusterResponse(
            enodes=map(enode_to, self._directory.enodes()),
            snodes=map(snode_to, self._directory.snodes()),
            version=self._directory.version,
            now_ms=self._clock.now_ms(),
        )


def _transaction(one: OpenTransaction) -> admin_pb2.OpenTransaction:
    return admin_pb2.OpenTransaction(
        transaction_id=one.transaction_id,
        queue=queue_to(one.queue),
        message_count=one.half.message_count,
        producer_group=one.half.producer_group,
        begun_at_ms=one.half.stored_at_ms,
        next_check_ms=one.half.next_check_ms,
        checks=one.half.checks,
        parked=one.half.parked,
    )


def _tailed(tailed: PlacedMessage) -> admin_pb2.TailResponse:
    try:
        text = tailed.message.body.decode()
    except UnicodeDecodeError:
        text = ""
    return admin_pb2.TailResponse(
        message_id=tailed.message_id,
        queue=queue_to(tailed.queue),
        offset=tailed.offset,
        stored_at_ms=tailed.stored_at_ms,
        message=message_to(tailed.message),
        body_text=text,
    )
