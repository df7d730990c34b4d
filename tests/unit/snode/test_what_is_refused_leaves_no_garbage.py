"""Refused requests leave no garbage: neither the request nor the frames that its error refers to."""

import contextlib
import gc
import weakref
from collections.abc import Awaitable, Iterator
from types import SimpleNamespace
from typing import Any

from ortoo.common.directory.group import Group
from ortoo.common.errors import Conflict, Invalid, OrtooError
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.snode.clients.session import RegistrationResult
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.rpc.pop import PopConsumerHandlers
from ortoo.snode.rpc.session import ConnectCall
from ortoo.snode.rpc.streams import RequestMemory
from ortoo.snode.topics.group_settings import GroupSettings
from ortoo.v1 import pop_pb2
from ortoo.v1 import session_pb2 as pb


@contextlib.contextmanager
def nobody_collects() -> Iterator[None]:
    """The garbage collector is off."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def refusal(kind: type[OrtooError], asking: Awaitable[object]) -> weakref.ref[OrtooError] | None:
    """A weak reference to the error, to see that only its own garbage holds it."""
    try:
        await asking
    except kind as error:
        return weakref.ref(error)
    return None


async def test_the_refusal_of_a_closed_group_is_gone_with_who_hears_it() -> None:
    """Every pop of a disabled group is refused with it."""
    directory: Any = DirectoryCache()
    directory.update_group(Group("g", 1, consume_enabled=False))
    groups = GroupSettings(directory, SimpleNamespace(), auto_create=True)  # type: ignore[arg-type]

    with nobody_collects():
        error = await refusal(Conflict, groups.check("g"))
        assert error is not None
        assert error() is None


async def test_a_refused_registration_is_gone_once_it_is_told() -> None:
    """It waits in the session until the client has received it, and no longer."""
    told: list[RegistrationResult] = []

    def refuse(session: Any, group: str) -> None:
        raise Conflict("it is somebody else's")

    sessions: Any = SimpleNamespace(register_producer=refuse)
    session: Any = SimpleNamespace(client_id="c", outbox=SimpleNamespace(put=told.append))
    call = ConnectCall(sessions, None, RequestMemory(MemoryBudget().share("Connect")))  # type: ignore[arg-type]
    request = pb.ConnectRequest(request_id=3, register_producer=pb.RegisterProducer(group="g"))
    with nobody_collects():
        await call._handle(session, request)
        [answer] = told
        assert (answer.request_id, answer.group, answer.client_id, answer.members) == (3, "g", "c", None)
        assert answer.error is not None
        error = weakref.ref(answer.error)
        told.clear()
        del answer
        assert error() is None


async def test_the_refusal_of_receipts_is_gone_with_who_hears_it() -> None:
    """If several cannot be read the first is reported; the others do not keep the frame of the call."""
    cluster: Any = SimpleNamespace(directory=DirectoryCache())
    calls = PopConsumerHandlers(cluster=cluster, pop=None, clients=None, long_calls=None)  # type: ignore[arg-type]
    receipts = [pop_pb2.LeaseReceipt(receipt_handle=text) for text in ("rubbish", "waste")]

    with nobody_collects():
        error = await refusal(Invalid, calls.Ack(pop_pb2.AckRequest(receipts=receipts), None))  # type: ignore[arg-type]
        assert error is not None
        assert error() is None
