"""A bare client of SessionService, for tests."""

from types import TracebackType
from typing import Any, Self

from ortoo.v1 import consumer_pb2, session_pb2
from ortoo.v1.session_pb2_grpc import SessionServiceStub
from tests.integration.snode_calls import Snode


class SessionClient:
    """One Connect call; events of the server that the test does not wait for are stored."""

    def __init__(self, running: Snode, client_id: str = "", *, snode: str = "snode-0", **hello: Any) -> None:
        channel = running.cluster.channels.channel_to(running.cluster.address_of(snode))
        self.call: Any = SessionServiceStub(channel).Connect()
        self.others: list[Any] = []
        self.session_id = ""
        self.client_id = ""
        self._hello = session_pb2.Hello(client_id=client_id, **hello)
        self._requests = 0

    async def __aenter__(self) -> Self:
        await self.say(hello=self._hello)
        opened = await self.event("opened")
        self.session_id, self.client_id = opened.session_id, opened.client_id
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.call.cancel()

    async def say(self, **event: Any) -> int:
        """Send a request; return its id."""
        self._requests += 1
        await self.call.write(session_pb2.ConnectRequest(request_id=self._requests, **event))
        return self._requests

    async def consume(self, group: str, *topics: str, **how: Any) -> session_pb2.Registered:
        """Register as a consumer; topics may be `topic` or `topic:tags`."""
        wanted = [topic.partition(":") for topic in topics]
        version = how.pop("version", 0)
        subscriptions = [
            consumer_pb2.Subscription(topic=topic, tag_expression=tags, version=version) for topic, _, tags in wanted
        ]
        how.setdefault("consume_type", session_pb2.CONSUME_TYPE_PULL)
        wish = session_pb2.RegisterConsumer(group=group, subscriptions=subscriptions, **how)
        return await self.answer(await self.say(register_consumer=wish))

    async def answer(self, request_id: int) -> session_pb2.Registered:
        """The answer to a registration."""
        while True:
            response = await self._read()
            if response.request_id == request_id:
                registered: session_pb2.Registered = response.registered
                return registered
            self.others.append(response)

    async def event(self, kind: str) -> Any:
        """The next event of a kind."""
        while (response := await self._read()).WhichOneof("event") != kind:
            self.others.append(response)
        return getattr(response, kind)

    async def members(self, group: str, *client_ids: str) -> session_pb2.MembersChanged:
        """Wait until the server reports these group members."""
        while True:
            changed: session_pb2.MembersChanged = await self.event("members_changed")
            if changed.group == group and list(changed.client_ids) == list(client_ids):
                return changed

    async def _read(self) -> Any:
        response = await self.call.read()
        if not isinstance(response, session_pb2.ConnectResponse):
            raise EOFError(f"the session ended: {await self.call.code()} {await self.call.details()}")
        return response
