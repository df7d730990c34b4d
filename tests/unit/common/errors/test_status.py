"""Every error kind is translated to gRPC and back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ortoo.common import errors
from ortoo.common.errors.status import TABLE, error_of, error_of_rpc, failure_of, rpc_errors, status_of
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import enode_pb2, enode_pb2_grpc, failure_pb2


def kinds() -> list[type[errors.OrtooError]]:
    return [cls for cls in vars(errors).values() if isinstance(cls, type) and cls.__base__ is errors.OrtooError]


def test_every_kind_is_in_the_table_once() -> None:
    """No error kind, status or failure kind is missing or used twice."""
    assert {cls for cls, _, _ in TABLE} == set(kinds())
    assert len({status for _, status, _ in TABLE}) == len(TABLE)
    numbers = set(failure_pb2.FailureKind.values()) - {failure_pb2.FAILURE_KIND_UNSPECIFIED}
    assert {kind for _, _, kind in TABLE} == numbers


@pytest.mark.parametrize("cls", kinds())
def test_kind_survives_the_wire(cls: type[errors.OrtooError]) -> None:
    """Kind, message, field and delay are the same after a round trip."""
    there = cls("wrong, and why; do this", field="topic", retry_after_ms=7)
    back = error_of(failure_pb2.Failure.FromString(failure_of(there).SerializeToString()))
    assert (type(back), back.message, back.field, back.retry_after_ms) == (cls, there.message, "topic", 7)


def test_a_leader_that_moved_survives_the_wire() -> None:
    """The client gets the leader and its epoch; an old client reads that nothing was stored."""
    there = errors.NotLeader("ask the other", leader_address="10.0.0.2:8072", epoch=7)
    failure = failure_pb2.Failure.FromString(failure_of(there).SerializeToString())
    back = error_of(failure)
    assert isinstance(back, errors.NotLeader)
    assert (back.leader_address, back.epoch, back.message) == ("10.0.0.2:8072", 7, "ask the other")
    assert status_of(there) is grpc.StatusCode.UNAVAILABLE
    assert (failure.kind, failure.field) == (failure_pb2.FAILURE_KIND_UNAVAILABLE, errors.NOT_ACCEPTED_FIELD)


def test_nobody_has_to_lead_yet() -> None:
    """A replica that knows no leader sends an empty address, which still means more than Unavailable."""
    back = error_of(failure_pb2.Failure.FromString(failure_of(errors.NotLeader()).SerializeToString()))
    assert isinstance(back, errors.NotLeader)
    assert (back.leader_address, back.epoch) == ("", 0)


@pytest.mark.parametrize("field", ["role_names.snode", "x-ortoo-cluster", "tls_cluster_listen_address"])
def test_a_process_without_a_role_is_no_users_fault(field: str) -> None:
    """A snode that an enode refuses reports Unavailable to its client, not Forbidden."""
    refusal = failure_of(errors.Forbidden("is for the role snode", field=field)).SerializeToString()
    error = rpc_error(grpc.StatusCode.PERMISSION_DENIED, ("ortoo-failure-bin", refusal))
    told = error_of_rpc(error, "enode-0", is_internal=True)
    assert type(told) is errors.Unavailable
    assert "enode-0 refuses this process: is for the role snode" in told.message
    assert type(error_of_rpc(error, "enode-0")) is errors.Forbidden
    users = failure_of(errors.Forbidden("no permission", field="access")).SerializeToString()
    about_user = rpc_error(grpc.StatusCode.PERMISSION_DENIED, ("ortoo-failure-bin", users))
    assert type(error_of_rpc(about_user, "snode-1", is_internal=True)) is errors.Forbidden


def rpc_error(code: grpc.StatusCode, *metadata: tuple[str, bytes]) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), details="words")


@pytest.mark.parametrize("code", [c for c in grpc.StatusCode if c is not grpc.StatusCode.OK])
def test_every_status_becomes_an_error(code: grpc.StatusCode) -> None:
    """A status without a Failure, such as the transport's own, still becomes a named error."""
    error = error_of_rpc(rpc_error(code), "peer")
    assert isinstance(error, errors.OrtooError)
    assert "peer" in str(error)
    if code is grpc.StatusCode.INTERNAL:
        assert isinstance(error, errors.Unavailable)  # the transport's status for a broken connection
    elif code in {status for _, status, _ in TABLE}:
        assert status_of(error) is code


def test_garbage_in_the_failure_metadata_is_ignored() -> None:
    """An invalid Failure is ignored, and the status counts."""
    error = error_of_rpc(rpc_error(grpc.StatusCode.NOT_FOUND, ("ortoo-failure-bin", b"\xff\xff")), "peer")
    assert isinstance(error, errors.NotFound)


def test_default_message_is_the_class_docstring() -> None:
    """An error raised without a message has a default one."""
    assert str(errors.Fenced()) == "A newer owner holds this lock or assignment."


TURNS = 14
"""Number of turns of the loop after which a call to a closed port has failed, or is about to."""


async def test_a_cancellation_is_not_lost_that_meets_the_end_of_its_call() -> None:
    """A task that is cancelled at any moment of a failing call ends, and does not retry."""
    async with Channels() as channels, Background("test") as background:
        stub = enode_pb2_grpc.EnodeServiceStub(channels.channel_to("127.0.0.1:1"))

        async def requests() -> AsyncIterator[enode_pb2.AttachRequest]:
            while True:
                yield enode_pb2.AttachRequest()
                await asyncio.Event().wait()

        async def ask() -> None:
            with contextlib.suppress(errors.Unavailable), rpc_errors("peer"):
                async for _ in stub.Attach(requests()):
                    pass

        await background.spawn("connect", ask())
        cancelled = 0
        for turns in list(range(TURNS)) * 5:
            asked = background.spawn(f"ask {turns}", ask())
            for _ in range(turns):
                await SystemClock().sleep(0)
            if asked.cancel():
                cancelled += 1
                with pytest.raises(asyncio.CancelledError):
                    await asked
        assert cancelled > TURNS


async def test_a_failed_call_is_an_error_in_a_task_that_was_cancelled_before() -> None:
    """A task that cleans up after a cancellation still gets the error of a failed call."""
    async with Channels() as channels, Background("test") as background:
        stub = health_pb2_grpc.HealthStub(channels.channel_to("127.0.0.1:1"))
        failures: list[Exception] = []

        async def clean_up() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                try:
                    with rpc_errors("peer"):
                        await stub.Check(health_pb2.HealthCheckRequest())
                except errors.Unavailable as error:
                    failures.append(error)

        cleaning = background.spawn("clean up", clean_up())
        background.spawn("cancel", cancel(cleaning))
        with pytest.raises(asyncio.CancelledError):
            await cleaning
        assert len(failures) == 1


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel another task from within the loop."""
    task.cancel()
