"""A bare client of a push session, for tests."""

from types import TracebackType
from typing import Any, Self

from ortoo.v1 import consumer_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from tests.integration.snode_calls import Snode


class PushClient:
    """Joins a group and grants plenty of credit; the test does everything else."""

    def __init__(
        self,
        running: Snode,
        group: str,
        topic: str,
        *,
        tags: str = "",
        from_beginning: bool = False,
        messages: int = 10_000,
        size_bytes: int = 64 << 20,
        client_id: str = "",
        snode: str = "snode-0",
        **how: Any,
    ) -> None:
        channel = running.cluster.channels.channel_to(running.cluster.address_of(snode))
        self.call: Any = ConsumerServiceStub(channel).Push()
        self._credit = (messages, size_bytes)
        opening: dict[str, Any] = {
            "group": group,
            "client_id": client_id,
            "subscriptions": [consumer_pb2.Subscription(topic=topic, tag_expression=tags)],
            "start_from": consumer_pb2.START_FROM_FIRST if from_beginning else consumer_pb2.START_FROM_LAST,
        }
        self._open = consumer_pb2.OpenSession(**(opening | how))
        self.others: list[Any] = []
        self.closed = False

    async def __aenter__(self) -> Self:
        await self.call.write(consumer_pb2.PushRequest(open=self._open))
        await self.event("opened")
        if self._credit[0]:
            await self.grant(*self._credit)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None and not self.call.done() and not self.closed:
            await self.leave()
        self.call.cancel()

    async def leave(self) -> consumer_pb2.SessionClosed:
        """Leave gracefully."""
        await self.call.write(consumer_pb2.PushRequest(close=consumer_pb2.CloseSession()))
        closed: consumer_pb2.SessionClosed = await self.event("closed")
        return closed

    async def grant(self, messages: int, size_bytes: int) -> None:
        """Grant more credit."""
        credit = consumer_pb2.Credit(messages=messages, bytes=size_bytes)
        await self.call.write(consumer_pb2.PushRequest(credit=credit))

    async def acknowledge(self, delivery: consumer_pb2.Delivery) -> None:
        """Acknowledge a whole delivery."""
        offset = consumer_pb2.CommittedOffset(
            queue=delivery.queue, offset=delivery.next_offset, generation=delivery.generation
        )
        await self.call.write(consumer_pb2.PushRequest(commit=consumer_pb2.Commit(offsets=[offset])))

    async def queues(self, count: int) -> consumer_pb2.Assignment:
        """The first assignment of `count` queues."""
        while len((found := await self.event("assignment")).queues) != count:
            pass
        assignment: consumer_pb2.Assignment = found
        return assignment

    async def delivery(self) -> Any:
        """The next delivery."""
        return await self.event("delivery")

    async def event(self, kind: str) -> Any:
        """The next event of a kind; others are stored for later."""
        while isinstance(response := await self.call.read(), consumer_pb2.PushResponse):
            name = response.WhichOneof("event")
            self.closed = self.closed or name == "closed"
            if name == kind:
                return getattr(response, name)
            self.others.append(response)
        raise EOFError(f"the session ended before a {kind}: {await self.call.code()} {await self.call.details()}")
