"""ConsumerService."""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import grpc

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.errors.status import failure_of
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.process.background import Background
from ortoo.snode.clients.locks import ClientLocks
from ortoo.snode.clients.sessions import ClientSessions
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.cluster.wire import envelope_to, queue_of, queue_to
from ortoo.snode.filters.selection import Columns, Selected, columns_of, compile_filter, projected
from ortoo.snode.membership.members import CloseReason, Member, sharing, strategy_of
from ortoo.snode.pop.dead_letters import SendingBack
from ortoo.snode.pop.popping import Popping
from ortoo.snode.pull.pulling import Pulling
from ortoo.snode.pull.reading import Reading
from ortoo.snode.push.sessions import Sessions
from ortoo.snode.rpc import pop
from ortoo.snode.rpc.long_calls import LongCalls
from ortoo.snode.rpc.members import member_to
from ortoo.snode.rpc.pulls import locks_to, offset_to, offsets_of, pull_of, pulled_to, refused_to
from ortoo.snode.rpc.push import PushCall
from ortoo.snode.rpc.send_back import send_back
from ortoo.v1 import consumer_pb2, consumer_pb2_grpc, pop_pb2, pull_pb2

NAME = consumer_pb2.DESCRIPTOR.services_by_name["ConsumerService"].full_name
Context = grpc.aio.ServicerContext[Any, Any]


class ConsumerService(consumer_pb2_grpc.ConsumerServiceServicer):
    """How messages get out."""

    def __init__(
        self,
        watch: DirectoryWatch,
        sessions: Sessions,
        clients: ClientSessions,
        reading: Reading,
        pulling: Pulling,
        locks: ClientLocks,
        background: Background,
        long_calls: LongCalls,
        popping: Popping,
        sending_back: SendingBack,
        *,
        here: Member,
    ) -> None:
        """`here` is a member that says only at which snode."""
        self._watch = watch
        self._sessions = sessions
        self._clients = clients
        self._pulling = pulling
        self._locks = locks
        self._here = here
        self._reading = reading
        self._background = background
        self._long_calls = long_calls
        self._popping = popping
        self._sending_back = sending_back

    async def Push(  # type: ignore[override]  # see bulk_calls
        self, request_iterator: AsyncIterator[consumer_pb2.PushRequest], context: Context
    ) -> AsyncIterator[Bulky]:
        """A push session."""
        member = dataclasses.replace(self._here, peer=context.peer(), since_ms=self._clients.now_ms())
        call = PushCall(self._sessions, self._clients, request_iterator, member)
        session = await call.open()
        reading = self._background.spawn("push", call.read(session))
        try:
            async for response in call.responses(session):
                yield response
        finally:
            # The call may be over because the client is gone: then nothing can be waited for here.
            reading.cancel()
            self._sessions.ended(session)
            leaving = self._sessions.close(session, CloseReason.CLIENT_LEFT, "the connection is gone")
            self._background.spawn("leave", leaving)

    async def Pop(self, request: pop_pb2.PopRequest, context: Context) -> pop_pb2.PopResponse:
        """Lease messages to a consumer."""
        with self._long_calls.running():
            return await pop.pop(self._popping, request)

    async def Ack(self, request: pop_pb2.AckRequest, context: Context) -> pop_pb2.AckResponse:
        """Popped messages are processed."""
        return await pop.ack(self._popping, request)

    async def Nack(self, request: pop_pb2.NackRequest, context: Context) -> pop_pb2.NackResponse:
        """Popped messages shall come again."""
        return await pop.nack(self._popping, request)

    async def ChangeInvisible(
        self, request: pop_pb2.ChangeInvisibleRequest, context: Context
    ) -> pop_pb2.ChangeInvisibleResponse:
        """Popped messages stay for longer."""
        return await pop.change_invisible(self._popping, request)

    async def Fetch(  # type: ignore[override]  # see bulk_calls
        self, request: consumer_pb2.FetchRequest, context: Context
    ) -> AsyncIterator[Bulky]:
        """Read whole batches of one queue, outside any group."""
        if request.from_offset < 0 or request.to_offset < 0:
            raise Invalid("an offset is negative; give 0 or more", field="from_offset")
        wanted = compile_filter(request.tag_expression, request.sql_expression)
        columns = columns_of(request.columns)
        begun = False
        parts = self._reading.fetch(
            queue_of(request.queue), request.from_offset, request.to_offset, follow=request.follow, wanted=wanted
        )
        try:
            with self._long_calls.running():
                async for topic_id, part in parts:
                    begun = True
                    yield _batch(topic_id, part, columns)
        except OrtooError as error:
            if not begun:
                raise
            yield Bulky(consumer_pb2.FetchResponse(failure=failure_of(error)))

    async def QueryQueues(
        self, request: consumer_pb2.QueryQueuesRequest, context: Context
    ) -> consumer_pb2.QueryQueuesResponse:
        """First and next offset of each queue of a topic."""
        ranges = await self._reading.queue_ranges(await self._watch.topic(request.topic))
        return consumer_pb2.QueryQueuesResponse(
            queues=[
                consumer_pb2.QueueState(queue=queue_to(q), begin_offset=r.begin_offset, end_offset=r.end_offset)
                for q, r in ranges.items()
            ]
        )

    async def Pull(self, request: pull_pb2.PullRequest, context: Context) -> pull_pb2.PullResponse:
        """Messages of one queue from an offset on."""
        with self._long_calls.running():
            return pulled_to(await self._pulling.pull(pull_of(request)))

    async def QueryMembers(
        self, request: pull_pb2.QueryMembersRequest, context: Context
    ) -> consumer_pb2.QueryMembersResponse:
        """The members of a group now."""
        check_group_name(request.group, "group")
        found = self._clients.members(request.group)
        return consumer_pb2.QueryMembersResponse(
            version=found.version,
            client_ids=sharing(found.members),
            members=[member_to(found.members[one]) for one in sorted(found.members)],
            strategy=strategy_of(found.members).value,  # type: ignore[arg-type]
        )

    async def LockQueues(self, request: pull_pb2.LockQueuesRequest, context: Context) -> pull_pb2.LockQueuesResponse:
        """Take or renew the right to consume queues."""
        session = self._clients.get(request.session_id) if request.session_id else None
        answers = await self._locks.take(request.group, request.client_id, session, list(map(queue_of, request.queues)))
        return locks_to(answers)

    async def UnlockQueues(
        self, request: pull_pb2.UnlockQueuesRequest, context: Context
    ) -> pull_pb2.UnlockQueuesResponse:
        """Give queues back."""
        session = self._clients.get(request.session_id) if request.session_id else None
        queues = list(map(queue_of, request.queues))
        released = await self._locks.release(request.group, request.client_id, session, queues)
        return pull_pb2.UnlockQueuesResponse(released=map(queue_to, released))

    async def CommitOffsets(
        self, request: pull_pb2.CommitConsumerOffsetsRequest, context: Context
    ) -> pull_pb2.CommitConsumerOffsetsResponse:
        """Store how far a group has consumed."""
        refused = await self._pulling.commit(request.group, offsets_of(request.offsets))
        return pull_pb2.CommitConsumerOffsetsResponse(refused=map(refused_to, refused))

    async def QueryOffsets(
        self, request: pull_pb2.QueryConsumerOffsetsRequest, context: Context
    ) -> pull_pb2.QueryConsumerOffsetsResponse:
        """How far a group has consumed."""
        found = await self._pulling.query(request.group, list(map(queue_of, request.queues)), request.topic)
        return pull_pb2.QueryConsumerOffsetsResponse(
            offsets=[offset_to(one) for one in found if one.error is None],
            refused=[refused_to(one) for one in found if one.error is not None],
        )

    async def SearchOffset(
        self, request: pull_pb2.SearchOffsetRequest, context: Context
    ) -> pull_pb2.SearchOffsetResponse:
        """The first offset stored at or after a time."""
        offset = await self._pulling.find_offset(queue_of(request.queue), request.time_ms)
        return pull_pb2.SearchOffsetResponse(offset=offset)

    async def SendBack(self, request: pull_pb2.SendBackRequest, context: Context) -> pull_pb2.SendBackResponse:
        """Give messages back that could not be processed."""
        return await send_back(self._sending_back, request)


def add_to_server(service: ConsumerService, server: Any) -> None:
    """Serve it."""
    consumer_pb2_grpc.add_ConsumerServiceServicer_to_server(service, server)
    bulk_calls.serve(server, {"Push": service.Push, "Fetch": service.Fetch})


def _batch(topic_id: int, part: Selected, columns: Columns) -> Bulky:
    batch = projected(part.batch, columns) if part.batch is not None else None
    response = consumer_pb2.FetchResponse(
        first_offset=part.first_offset,
        next_offset=part.next_offset,
        stored_at_ms=part.stored_at_ms,
        batch=envelope_to(batch) if batch is not None else None,
        rows=part.rows,
        topic_id=topic_id,
    )
    return Bulky(response, (batch.records,) if batch is not None else ())
