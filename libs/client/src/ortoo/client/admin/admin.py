"""The operator's calls: groups, lag, messages. All go through AdminService, so grpcurl can call them too."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar

from ortoo.client.admin.descriptions import (
    ClusterInfo,
    DeadLetter,
    DelayedMessage,
    DeletedGroup,
    FoundMessages,
    GroupInfo,
    OpenTransaction,
    PeekedMessage,
    ReplayProgress,
)
from ortoo.client.admin.enodes.replicas import ReplicaAdmin
from ortoo.client.admin.groups import GroupAdmin, group_info
from ortoo.client.admin.lag import GroupLag
from ortoo.client.admin.operations import Operations
from ortoo.client.admin.schedules import ScheduleAdmin
from ortoo.client.admin.sinks import SinkAdmin
from ortoo.client.admin.topics import LISTED_AT_ONCE, UINT64_MAX, TopicCalls, check_count
from ortoo.client.admin.users import UserAdmin
from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Filter, Sql, filter_expressions
from ortoo.client.core.queues import Queue
from ortoo.client.core.wire import wire_queue
from ortoo.client.offsets.offset_lookup import search_offset
from ortoo.client.produce.transactions import TransactionVerdict, end_transaction
from ortoo.client.read.tailing import StoredMessage, follow_messages, newest_messages, read_messages
from ortoo.common.errors import Invalid, NotFound
from ortoo.common.grpc.messages import read
from ortoo.v1 import (
    admin_pb2,
    client_pb2,
    dead_letter_pb2,
    enode_deferred_pb2,
    group_deletion_pb2,
    namesrv_pb2,
    topic_pb2,
)
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.v1.dead_letter_pb2_grpc import DeadLetterServiceStub

T = TypeVar("T")


class Admin(TopicCalls):
    """The operator's calls about topics, groups and messages. Available as `Client.admin`."""

    def __init__(self, connection: Connection) -> None:
        """Applications use `Client.admin`."""
        super().__init__(connection)
        self.groups, self.operations = GroupAdmin(connection), Operations(connection)
        """Calls about groups and clients (`groups`) and about processes and diagnosis (`operations`)."""
        self.replicas = ReplicaAdmin(connection)
        """Calls about the replicas of enodes."""
        self.schedules = ScheduleAdmin(connection)
        """Calls about schedules of recurring messages."""
        self.sinks = SinkAdmin(connection)
        """Calls about exactly-once sinks."""
        self.users = UserAdmin(connection)
        """Calls about users."""
        self._connection = connection

    async def list_groups(self, *, after: str = "", limit: int = 0) -> list[GroupInfo]:
        """The groups whose names follow `after`, sorted by name; the first `limit` of them, 0 = all."""
        request = namesrv_pb2.ListGroupsRequest(after=after, limit=check_count(limit, "limit") or LISTED_AT_ONCE)
        if limit:
            return [group_info(group) for group in (await self._call("ListGroups", request)).groups]
        return [group_info(group) async for page in self._pages("ListGroups", request) for group in page.groups]

    async def describe_group(self, name: str) -> GroupInfo:
        """A group as registered at the name server. Errors: NotFound."""
        for group in (await self._call("ListGroups", namesrv_pb2.ListGroupsRequest(name=name))).groups:
            if group.name == name:  # older servers list all groups
                return group_info(group)
        raise NotFound(f"there is no group {name!r}; a group is created by its first consumer", field="group")

    async def put_group(
        self,
        name: str,
        *,
        consume_enabled: bool | None = None,
        slow_consumer_threshold_messages: int = 0,
        slow_consumer_grace_ms: int = 0,
    ) -> GroupInfo:
        """Create or change a group. 0 = the default. `consume_enabled` None = unchanged; a new group may consume."""
        group = topic_pb2.Group(
            name=name,
            consume_enabled=consume_enabled,
            slow_consumer_threshold_messages=check_count(slow_consumer_threshold_messages, "threshold"),
            slow_consumer_grace_ms=check_count(slow_consumer_grace_ms, "grace") or None,
        )
        return group_info((await self._call("PutGroup", namesrv_pb2.PutGroupRequest(group=group))).group)

    async def delete_group(self, name: str, *, at_once: bool = False) -> None:
        """Delete a group. It can be restored for one day, unless `at_once` deletes its offsets too. Errors: NotFound.

        State that a consumer creates after the deletion is kept.
        """
        await self._call("DeleteGroup", namesrv_pb2.DeleteGroupRequest(name=name, skip_grace_period=at_once))

    async def undelete_group(self, name: str) -> GroupInfo:
        """Restore a deleted group with its settings and offsets.

        Errors: NotFound, or AlreadyExists when a group of this name was declared after the deletion.
        """
        return group_info((await self._call("UndeleteGroup", group_deletion_pb2.UndeleteGroupRequest(name=name))).group)

    async def list_deleted_groups(self) -> list[DeletedGroup]:
        """The deleted groups that can be restored, most recently deleted first."""
        pages = self._pages("ListDeletedGroups", group_deletion_pb2.ListDeletedGroupsRequest(limit=LISTED_AT_ONCE))
        return [read(DeletedGroup, one, group=group_info(one.group)) async for page in pages for one in page.groups]

    async def describe_lag(self, group: str, topic: str) -> GroupLag:
        """The lag of a group in each queue of a topic. Errors: NotFound for the topic or the group."""
        answer = await self._call("DescribeLag", admin_pb2.DescribeLagRequest(group=group, topic=topic))
        if all(item.committed_offset < 0 for item in answer.queues):
            await self.describe_group(group)  # raises NotFound for a misspelled group, which has no offsets either
        return read(GroupLag, answer)

    async def describe_cluster(self) -> ClusterInfo:
        """The processes of the cluster."""
        return read(ClusterInfo, await self._call("DescribeCluster", admin_pb2.DescribeClusterRequest()))

    async def count_consumers(self, group: str) -> int:
        """The number of consumers of a group that are connected now, on all snodes."""
        try:
            return len((await self._call("ListConsumers", client_pb2.ListConsumersRequest(group=group))).consumers)
        except NotFound:
            return 0

    async def find_messages(
        self, topic: str, *, key: str = "", message_id: str = "", begin_ms: int = 0, end_ms: int = 0, limit: int = 0
    ) -> FoundMessages:
        """Messages with a key, or the message with an id, stored in [begin_ms, end_ms), newest first.

        `end_ms` 0 = no end, `limit` 0 = 32. Errors: NotFound (topic), Invalid, Unavailable without a usable key index.
        """
        messages: list[StoredMessage] = []
        while True:
            request = admin_pb2.AdminFindMessagesRequest(
                topic=topic,
                key=key,
                message_id=message_id,
                begin_ms=begin_ms,
                end_ms=end_ms,
                limit=check_count(limit, "limit"),
                skip=len(messages),
            )
            answer = await self._call("FindMessages", request)
            found = read(FoundMessages, answer)
            messages += found.messages
            if not answer.more:
                return FoundMessages(tuple(messages), found.unreachable_enodes)

    async def list_delayed(self, topic: str, *, from_ms: int = 0, limit: int = 100) -> list[DelayedMessage]:
        """The delayed messages of a topic that are due at `from_ms` or later, sorted by due time."""
        request = admin_pb2.ListDelayedMessagesRequest(topic=topic, from_ms=from_ms, limit=check_count(limit, "limit"))
        answer = await self._call("ListDelayedMessages", request)
        return [read(DelayedMessage, one) for one in answer.messages]

    async def list_transactions(
        self, *, topic: str = "", producer_group: str = "", parked_only: bool = False, limit: int = 100
    ) -> list[OpenTransaction]:
        """Open transactions, oldest first. An empty `topic` or `producer_group` matches all transactions."""
        request = admin_pb2.ListTransactionsRequest(
            topic=topic, producer_group=producer_group, parked_only=parked_only, limit=check_count(limit, "limit")
        )
        answer = await self._call("ListTransactions", request)
        return [read(OpenTransaction, one) for one in answer.transactions]

    async def end_transaction(self, transaction_id: str, verdict: TransactionVerdict) -> None:
        """Commit or roll back a transaction for its producer. Errors: NotFound, Conflict after the opposite verdict."""
        if verdict is TransactionVerdict.UNKNOWN:
            raise Invalid("UNKNOWN does not end a transaction; expected COMMIT or ROLLBACK", field="verdict")
        await end_transaction(self._connection, transaction_id, verdict, enode_deferred_pb2.VERDICT_SOURCE_OPERATOR)

    async def resume_transaction(self, transaction_id: str) -> None:
        """Resume the checks of a parked transaction. Errors: NotFound, Conflict when it is not parked."""
        await self._call("ResumeTransaction", admin_pb2.ResumeTransactionRequest(transaction_id=transaction_id))

    def tail(
        self,
        topic: str,
        *,
        from_beginning: bool = False,
        follow: bool = True,
        messages_max: int = 0,
        filter: Filter = "*",
    ) -> AsyncIterator[StoredMessage]:
        """Messages of all queues of a topic: new messages without end, or all messages with `from_beginning`.

        With both `from_beginning` and `follow=False` the iterator ends. No group is joined and no offset moves.
        Errors: NotFound, or Unavailable when the snode or an enode disconnects.
        """
        tags, sql = filter_expressions(filter)
        request = admin_pb2.TailRequest(
            topic=topic,
            from_beginning=from_beginning,
            follow=follow,
            messages_max=check_count(messages_max, "messages_max"),
            tag_expression=tags,
            sql_expression=sql,
        )
        return self._stream(StoredMessage, AdminServiceStub, "Tail", request)

    async def tail_last(
        self, topic: str, count: int, *, follow: bool = True, filter: Filter = "*"
    ) -> AsyncIterator[StoredMessage]:
        """The newest `count` messages of a topic; with `follow`, each new message after them. Errors: as `tail`."""
        queues = (await self.describe_topic(topic)).queues
        ranges = {it.queue: (it.begin_offset, it.end_offset) for it in queues}
        for stored in await newest_messages(self._connection, ranges, check_count(count, "count"), filter):
            yield stored
        if follow:
            ends = {queue: end for queue, (_, end) in ranges.items()}
            async for stored in follow_messages(self._connection, ends, filter):
                yield stored

    async def tail_from(
        self,
        topic: str,
        *,
        offset: int = 0,
        time_ms: int | None = None,
        follow: bool = True,
        filter: Filter = "*",
    ) -> AsyncIterator[StoredMessage]:
        """Messages of all queues from `offset`, or from the first message stored at or after `time_ms` (-1 = the end).

        Each queue is in order. With `follow` the iterator never ends. Errors: as `tail`.
        """
        ranges = {it.queue: (it.begin_offset, it.end_offset) for it in (await self.describe_topic(topic)).queues}
        starts = {queue: max(begin, check_count(offset, "offset", UINT64_MAX)) for queue, (begin, _) in ranges.items()}
        if time_ms is not None:
            ends = {queue: end for queue, (_, end) in ranges.items()}
            found = [search_offset(self._connection, queue, time_ms) for queue in ranges] if time_ms >= 0 else []
            starts = dict(zip(ranges, await asyncio.gather(*found), strict=True)) if found else ends
        source = (
            follow_messages(self._connection, starts, filter)
            if follow
            else read_messages(self._connection, {queue: (starts[queue], ranges[queue][1]) for queue in ranges}, filter)
        )
        async with aclosing(source) as messages:
            async for stored in messages:
                yield stored

    def list_dead_letters(
        self,
        group: str,
        condition: Sql | None = None,
        *,
        dead_letters_max: int = 0,
        include_replayed: bool = False,
        after: tuple[Queue, int] | None = None,
    ) -> AsyncIterator[DeadLetter]:
        """The dead letters of a group, enode by enode, oldest first. `dead_letters_max` 0 = all.

        `after` has the queue and the offset of a dead letter; the list continues after it.
        """
        request = dead_letter_pb2.ListDeadLettersRequest(
            group=group,
            condition=_condition_text(condition),
            dead_letters_max=check_count(dead_letters_max, "dead_letters_max"),
            include_replayed=include_replayed,
            after_queue=None if after is None else wire_queue(after[0]),
            after_offset=0 if after is None else check_count(after[1], "after", UINT64_MAX),
        )
        return self._stream(DeadLetter, DeadLetterServiceStub, "ListDeadLetters", request)

    def replay_dead_letters(
        self,
        group: str,
        condition: Sql | None = None,
        *,
        to_topic: str = "",
        messages_per_s: int = 0,
        messages_max: int = 0,
        dry_run: bool = False,
    ) -> AsyncIterator[ReplayProgress]:
        """Send dead letters again, each once. After an interruption, another call sends the remaining dead letters.

        The messages go to the group's retry topic, or to `to_topic`. The iterator yields the progress. Errors: Invalid,
        NotFound, Conflict (`to_topic` has no queue on an enode with dead letters), Unavailable.
        """
        request = dead_letter_pb2.ReplayDeadLettersRequest(
            group=group,
            condition=_condition_text(condition),
            to_topic=to_topic,
            messages_per_s=check_count(messages_per_s, "messages_per_s"),
            messages_max=check_count(messages_max, "messages_max"),
            dry_run=dry_run,
        )
        return self._stream(ReplayProgress, DeadLetterServiceStub, "ReplayDeadLetters", request)

    async def peek(self, topic: str, group: str = "", *, messages_max: int = 10) -> list[PeekedMessage]:
        """The next messages for a group that pops; without a group, the topic's oldest messages. No lease is taken."""
        count = check_count(messages_max, "messages_max")
        found: list[PeekedMessage] = []
        while True:
            request = dead_letter_pb2.PeekRequest(
                topic=topic, group=group, messages_max=max(0, count - len(found)), skip=len(found)
            )
            answer = await self._connection.call(DeadLetterServiceStub, "Peek", request)
            found += [read(PeekedMessage, one) for one in answer.messages]
            if not answer.more or not answer.messages or len(found) >= (count or len(found)):
                return found

    async def _stream(self, kind: type[T], stub: Any, method: str, request: Any) -> AsyncIterator[T]:
        async with aclosing(self._connection.stream(stub, method, request)) as answers:
            async for answer in answers:
                yield read(kind, answer)


def _condition_text(condition: Sql | None) -> str:
    return condition.expression if condition is not None else ""
