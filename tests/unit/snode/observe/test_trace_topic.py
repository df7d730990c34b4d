"""Records of sends and consumption: their content, the omitted ones, and their limit."""

import inspect
import json
from collections.abc import Sequence

from ortoo.common.errors import Unavailable
from ortoo.common.records.message import Message
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.snode.observe.trace_topic import WAITING_MAX, RecordedLink, TraceTopic
from ortoo.verification.time.virtual_clock import VirtualClock

QUEUE, OWN = Queue("t", "enode-0", 3), Queue("traces", "enode-0", 0)


def trace_topic() -> TraceTopic:
    """A trace topic without records."""
    return TraceTopic("traces", "snode-0", DirectoryCache(), VirtualClock())


async def published(trace: TraceTopic) -> list[Message]:
    """The records that wait; all are published."""
    found: list[Message] = []

    async def publish(topic: str, messages: Sequence[Message]) -> None:
        assert topic == "traces"
        found.extend(messages)

    await trace.flush(publish)
    return found


async def test_a_record_has_its_kind_as_tag_and_its_topic_as_key() -> None:
    """One for each batch and each acknowledgement. Operations on the trace topic have none."""
    trace = trace_topic()
    for queue in (QUEUE, OWN):
        trace.on_sent(queue, 17, 2, trace.clock.now_ms())
        trace.set_progress("g", queue, 17)
        trace.on_committed("g", queue, 18)
        trace.on_committed("g", queue, 18)
        trace.on_committed("g", queue, 21)
    records = await published(trace)
    assert {one.keys for one in records} == {("t",)}
    found = [json.loads(one.body) for one in records]
    assert [one.tag for one in records] == [one["kind"] for one in found] == ["send", "consume", "consume"]
    assert [(one["first_offset"], one["message_count"]) for one in found] == [(17, 2), (17, 1), (18, 3)]
    assert [one.get("group") for one in found] == [None, "g", "g"]
    assert trace.written == 3


async def test_records_beyond_the_limit_are_dropped_and_counted() -> None:
    """Nothing waits for them. Records that cannot be stored are dropped as well."""
    trace = trace_topic()
    for number in range(WAITING_MAX + 5):
        trace.on_sent(QUEUE, number, 1, trace.clock.now_ms())
    assert trace.dropped == 5
    assert len(await published(trace)) == WAITING_MAX

    async def refuse(topic: str, messages: Sequence[Message]) -> None:
        raise Unavailable("no enode accepts messages")

    trace.on_sent(QUEUE, 0, 1, trace.clock.now_ms())
    await trace.flush(refuse)
    assert (trace.dropped, await published(trace)) == (6, [])


def test_a_recorded_link_takes_the_parameters_of_a_link() -> None:
    """A parameter that it does not pass on would fail each call of a snode with a trace topic, and of no other one."""
    recorded = {name: one for name, one in vars(RecordedLink).items() if inspect.isfunction(one) and name[0] != "_"}
    assert len(recorded) > 4
    for name, method in recorded.items():
        taken = inspect.signature(method).parameters
        offered = inspect.signature(getattr(GrpcEnodeLink, name)).parameters
        assert [*taken] == [*offered], name
