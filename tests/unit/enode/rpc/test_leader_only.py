"""The check of the read lease for each answer of the enode's services."""

import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from ortoo.common.errors import NOT_ACCEPTED_FIELD, NotFound, NotLeader, OrtooError, Overloaded, Unavailable
from ortoo.common.process.clock import Clock
from ortoo.enode.rpc.leader_only import CONSISTENCY, STREAMS, Consistency, LeaderOnlyService
from ortoo.v1 import enode_pb2, enode_replicas_pb2, replication_pb2
from ortoo.v1.enode_pb2_grpc import EnodeServiceServicer

PAGE = Path(__file__).parents[4] / "docs" / "replication.md"
METHODS = enode_pb2.DESCRIPTOR.services_by_name["EnodeService"].methods
CONFIRMED = [name for name, kind in CONSISTENCY.items() if kind is Consistency.CONFIRMED]
UNCHECKED = [name for name, kind in CONSISTENCY.items() if kind is not Consistency.CONFIRMED]


class Term:
    """The services of a term; each method answers once, or raises `error`."""

    def __init__(self, error: OrtooError | None = None) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        if name in STREAMS:

            async def stream(request: Any, context: Any) -> AsyncIterator[str]:
                yield name

            return stream

        async def unary(request: Any, context: Any) -> str:
            if self.error is not None:
                raise self.error
            return name

        return unary


class Door:
    """The service, with a lease that the test gives and takes, and a clock."""

    def __init__(self, term: Term) -> None:
        self.has_lease = True
        self.waits = 0
        self.meanwhile: Callable[[], object] = lambda: None
        """Called while an answer waits."""
        self.service = LeaderOnlyService(NotLeader, lambda: self.has_lease, cast(Clock, self))
        self.service.service = cast(EnodeServiceServicer, term)

    async def sleep(self, seconds: float) -> None:
        """An answer waits."""
        self.waits += 1
        self.meanwhile()

    def renew(self) -> None:
        """A majority renews the lease."""
        self.has_lease = True

    def end_term(self) -> None:
        """Another replica leads."""
        self.service.service = None

    async def call(self, name: str) -> str:
        """The answer of a method."""
        method: Any = getattr(self.service, name)
        if name not in STREAMS:
            return str(await method(None, None))
        return "".join([one async for one in method(None, None)])


def test_each_method_has_a_consistency() -> None:
    """The table has every method of the service, and the page every method of the enode's services."""
    assert set(CONSISTENCY) == {one.name for one in METHODS}
    assert {one.name for one in METHODS if one.server_streaming} == STREAMS
    section = PAGE.read_text().partition("## Consistency of answers")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    listed = {name: row.split("|")[2].strip() for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    files = enode_pb2, enode_replicas_pb2, replication_pb2
    services = [service for file in files for service in file.DESCRIPTOR.services_by_name.values()]
    assert set(listed) == {method.name for service in services for method in service.methods}
    for name, kind in CONSISTENCY.items():
        assert listed[name].startswith("linearizable") == (kind is Consistency.CONFIRMED), name


def test_a_method_without_an_entry_is_not_served() -> None:
    """The server asks for each method when it starts."""
    with pytest.raises(AttributeError):
        _ = Door(Term()).service.ReadAnything


@pytest.mark.parametrize("name", CONSISTENCY)
async def test_an_answer_under_the_lease_is_sent(name: str) -> None:
    """No method waits while the lease is valid."""
    assert await Door(Term()).call(name) == name


@pytest.mark.parametrize("name", CONFIRMED)
async def test_an_answer_without_the_lease_waits_for_it(name: str) -> None:
    """It is sent when the lease is renewed in the same term, and dropped when the term ends."""
    door = Door(Term())
    door.has_lease, door.meanwhile = False, door.renew
    assert await door.call(name) == name
    assert door.waits == 1
    door.has_lease, door.meanwhile = False, door.end_term
    with pytest.raises(Unavailable, match="no longer leads"):
        await door.call(name)
    assert door.waits == 2


@pytest.mark.parametrize("name", UNCHECKED)
async def test_other_answers_need_no_lease(name: str) -> None:
    """A majority has committed them, or they are about this process."""
    door = Door(Term())
    door.has_lease = False
    assert await door.call(name) == name


async def test_an_error_is_an_answer_from_state_too() -> None:
    """A topic that a former leader does not know may exist."""
    door = Door(Term(NotFound("no topic")))
    with pytest.raises(NotFound):
        await door.call("DescribeQueues")
    door.has_lease, door.meanwhile = False, door.end_term
    with pytest.raises(Unavailable):
        await door.call("DescribeQueues")


@pytest.mark.parametrize("error", [NotLeader(), Overloaded("the disk is full", field=NOT_ACCEPTED_FIELD)])
async def test_an_error_that_nothing_was_stored_is_sent_without_the_lease(error: OrtooError) -> None:
    """It is about this process. Its caller sends the call to another replica, which it may not after another error."""
    door = Door(Term(error))
    door.has_lease, door.meanwhile = False, door.end_term
    for name in set(CONSISTENCY) - STREAMS:
        with pytest.raises(type(error)) as raised:
            await door.call(name)
        assert raised.value is error
    assert door.waits == 0


async def test_a_follower_names_the_leader() -> None:
    """No call reaches a service of an earlier term."""
    door = Door(Term())
    door.service.service = None
    for name in CONSISTENCY:
        with pytest.raises(NotLeader):
            await door.call(name)
