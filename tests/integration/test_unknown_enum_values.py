"""Values of enums that only a newer process knows: a snode rejects them in requests, a client maps those of answers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.client import Queue, connect
from ortoo.client.pull.pull_call import PullStatus, pull
from ortoo.client.sessions.group_view import GroupView
from ortoo.client.sessions.session import query_group_view
from ortoo.common.errors import OrtooError
from ortoo.common.groups.allocation import AllocationStrategy
from ortoo.v1 import (
    client_pb2,
    consumer_pb2,
    enode_deferred_pb2,
    failure_pb2,
    flow_control_pb2,
    namesrv_pb2,
    pop_pb2,
    producer_pb2,
    pull_pb2,
    session_pb2,
)
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceServicer, add_ConsumerServiceServicer_to_server
from ortoo.v1.session_pb2_grpc import SessionServiceServicer, add_SessionServiceServicer_to_server
from ortoo.verification.servers.listening import serve_servicer
from tests.integration.push_client import PushClient
from tests.integration.session_client import SessionClient
from tests.integration.snode_calls import Snode, batch_request, open_snode_cluster, queue

UNKNOWN: Any = 77


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Snode]:
    """A cluster with the topic t; a test that hangs is ended."""
    async with asyncio.timeout(60), open_snode_cluster(tmp_path) as opened:
        await opened.topic("t")
        yield opened


class Member:
    """A group member that stores the views it receives."""

    def __init__(self) -> None:
        self.views = asyncio.Queue[GroupView]()

    def on_members_changed(self, view: GroupView) -> None:
        """Store it."""
        self.views.put_nowait(view)

    def on_refused(self, error: OrtooError) -> None:
        """No registration is rejected here."""
        raise AssertionError(error)

    is_ordered = False

    def running_queues(self) -> list[session_pb2.RunningQueue]:
        """None."""
        return []

    async def consume_directly(self, message: Any) -> BaseException | None:
        """Never called."""
        raise AssertionError


class NewerSession(SessionServiceServicer):
    """A snode of a group whose strategy only newer versions know; another change follows the registration."""

    async def Connect(self, request_iterator: Any, context: Any) -> AsyncIterator[session_pb2.ConnectResponse]:
        """Answer the registration."""
        async for request in request_iterator:
            kind = request.WhichOneof("event")
            if kind == "hello":
                opened = consumer_pb2.SessionOpened(session_id="s", heartbeat_interval_ms=10_000, client_id="c")
                yield session_pb2.ConnectResponse(opened=opened)
            elif kind == "register_consumer":
                members = session_pb2.MembersChanged(group="g", client_ids=["c"], strategy=UNKNOWN)
                registered = session_pb2.Registered(group="g", members=members)
                yield session_pb2.ConnectResponse(request_id=request.request_id, registered=registered)
                changed = session_pb2.MembersChanged(
                    group="g", client_ids=["c", "d"], strategy=consumer_pb2.ALLOCATION_STRATEGY_CIRCLE
                )
                yield session_pb2.ConnectResponse(members_changed=changed)
            elif kind == "close":
                yield session_pb2.ConnectResponse(closed=consumer_pb2.SessionClosed())


async def test_a_session_survives_a_strategy_of_a_newer_group_member(caplog: pytest.LogCaptureFixture) -> None:
    """The application's block continues, the strategy becomes the default with a log event, later changes arrive."""
    member = Member()
    async with (
        asyncio.timeout(60),
        serve_servicer(add_SessionServiceServicer_to_server, NewerSession()) as address,
        connect(address) as mq,
    ):
        await mq._session.join(session_pb2.RegisterConsumer(group="g"), member)
        assert (await member.views.get()).strategy is AllocationStrategy.AVERAGELY
        assert await member.views.get() == GroupView(("c", "d"), None, {}, AllocationStrategy.CIRCLE)
    [record] = [one for one in caplog.records if "allocation_strategy_unknown" in one.getMessage()]
    assert "77" in record.getMessage()


class NewerConsumers(ConsumerServiceServicer):
    """A snode whose answers have values that only newer versions know."""

    async def QueryMembers(self, request: Any, context: Any) -> consumer_pb2.QueryMembersResponse:
        """A strategy of a newer group member."""
        return consumer_pb2.QueryMembersResponse(client_ids=["c"], strategy=UNKNOWN)

    async def Pull(self, request: Any, context: Any) -> pull_pb2.PullResponse:
        """A status of a newer snode."""
        return pull_pb2.PullResponse(status=UNKNOWN, next_offset=7)


async def test_unknown_values_in_answers_of_a_snode_do_not_raise() -> None:
    """A client that polls the group uses the default strategy; a pull continues at the next offset."""
    async with (
        asyncio.timeout(60),
        serve_servicer(add_ConsumerServiceServicer_to_server, NewerConsumers()) as address,
        connect(address) as mq,
    ):
        assert (await query_group_view(mq._connection, "g")).strategy is AllocationStrategy.AVERAGELY
        result = await pull(mq._connection, "g", Queue("t", "e", 0), 5)
        assert (result.status, result.next_offset) == (PullStatus.NO_NEW, 7)


async def test_an_unknown_flush_mode_rejects_its_batch_and_no_other(running: Snode) -> None:
    """The answer names the field and the accepted values. Batches before and after it on the stream are stored."""
    first, newer, last = (batch_request(number, queue("t"), [b"x"]) for number in (1, 2, 3))
    newer.flush_mode = UNKNOWN
    answers = await running.produce(first, newer, last)
    failure = answers[2].failure
    assert (failure.kind, failure.field) == (failure_pb2.FAILURE_KIND_INVALID, "flush_mode")
    assert "FLUSH_MODE_SYNC" in failure.message
    assert [answers[1].first_offset, answers[3].first_offset] == [0, 1]


@pytest.mark.parametrize("field", ["strategy", "message_model", "consume_type"])
async def test_an_unknown_value_rejects_a_registration(running: Snode, field: str) -> None:
    """The session continues, and a corrected registration is accepted."""
    async with SessionClient(running) as client:
        failure = (await client.consume("g", "t", **{field: UNKNOWN})).failure
        assert (failure.kind, failure.field) == (failure_pb2.FAILURE_KIND_INVALID, field)
        assert "give one of" in failure.message
        assert not (await client.consume("g", "t")).HasField("failure")


RULE = flow_control_pb2.FlowRule(unit=UNKNOWN, per_second=1)
CALLS: dict[str, tuple[str, str, Any]] = {
    "source": (
        "producer",
        "EndTransaction",
        producer_pb2.EndTransactionRequest(
            transaction_id="x", verdict=enode_deferred_pb2.VERDICT_COMMIT, source=UNKNOWN
        ),
    ),
    "verdict": (
        "producer",
        "EndTransaction",
        producer_pb2.EndTransactionRequest(transaction_id="x", verdict=UNKNOWN),
    ),
    "options.start_from": (
        "consumer",
        "Pop",
        pop_pb2.PopRequest(group="g", topic="t", options=pop_pb2.PopOptions(start_from=UNKNOWN)),
    ),
    "mode": ("admin", "SetDeliveryMode", client_pb2.SetDeliveryModeRequest(group="g", topic="t", mode=UNKNOWN)),
    "rules.unit": ("admin", "UpdateFlowControl", flow_control_pb2.UpdateFlowControlRequest(rules=[RULE])),
    "permission": ("admin", "CreateTopic", namesrv_pb2.CreateTopicRequest(name="u", permission=UNKNOWN)),
}


@pytest.mark.parametrize("field", CALLS)
async def test_an_unknown_value_in_a_call_is_an_invalid_argument(running: Snode, field: str) -> None:
    """The error names the field and the accepted values."""
    service, method, request = CALLS[field]
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await getattr(getattr(running, service), method)(request)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (raised.value.details() or "").startswith(f"{field}: ")
    assert "give one of" in (raised.value.details() or "") or "expected VERDICT_COMMIT" in (
        raised.value.details() or ""
    )


@pytest.mark.parametrize("field", ["start_from", "strategy", "message_model"])
async def test_an_unknown_value_rejects_a_push_session(running: Snode, field: str) -> None:
    """A start position of a newer client must not become the end of the queue, where messages would be skipped."""
    with pytest.raises((grpc.aio.AioRpcError, EOFError)) as raised:
        async with PushClient(running, "g", "t", **{field: UNKNOWN}):
            pass
    assert "INVALID_ARGUMENT" in str(raised.value)
    assert field in str(raised.value)
