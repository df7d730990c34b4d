"""Limits on requests: buckets, rules, their file."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from apache.rocketmq.v2 import service_pb2
from ortoo.common.errors import Invalid, Overloaded
from ortoo.snode.policy.flow_control import FlowControl, FlowRule, FlowUnit, parse_flow_rules
from ortoo.snode.policy.interceptors import InterceptedCall, InterceptorChain
from ortoo.verification.time.virtual_clock import VirtualClock


def call(method: str = "ProducerService/Publish", topic: str = "t", size_bytes: int = 100) -> InterceptedCall:
    """A request of this size."""
    return InterceptedCall(method, SimpleNamespace(topic=topic, ByteSize=lambda: size_bytes), "peer")


async def refused(flow: FlowControl, what: InterceptedCall) -> int:
    """0 if the call may go, else the time to wait, in milliseconds."""
    try:
        await flow.admit(what)
    except Overloaded as error:
        return error.retry_after_ms
    return 0


async def test_so_many_requests_a_second_and_heartbeats_are_free() -> None:
    """E-243: of ten a second the eleventh is refused with the time to wait, but heartbeats are free."""
    clock = VirtualClock()
    flow = FlowControl(clock)
    flow.replace([FlowRule(FlowUnit.REQUESTS, 10, "ProducerService/Publish")])
    assert [await refused(flow, call()) for _ in range(11)] == [0] * 10 + [100]
    assert await refused(flow, call("AdminService/ListTopics")) == 0
    flow.replace([FlowRule(FlowUnit.REQUESTS, 1)])
    assert [await refused(flow, call("MessagingService/Heartbeat")) for _ in range(20)] == [0] * 20
    clock.advance(1)
    assert await refused(flow, call()) == 0
    assert flow.refused_counts == [0]


async def test_a_limit_on_everything_lets_through_who_takes_it_back() -> None:
    """Otherwise only a restart could remove a limit that is too low."""
    flow = FlowControl(VirtualClock())
    flow.replace([FlowRule(FlowUnit.REQUESTS, 0.001)])
    assert [await refused(flow, call()) > 0 for _ in range(2)] == [False, True]
    assert [await refused(flow, call(f"AdminService/{one}FlowControl")) for one in ("Describe", "Update")] == [0, 0]


async def test_bytes_a_second() -> None:
    """E-244: with 5 KB a second the second 4 KB within one second is refused. One larger than the limit goes alone."""
    clock = VirtualClock()
    flow = FlowControl(clock)
    flow.replace([FlowRule(FlowUnit.BYTES, 5000)])
    assert await refused(flow, call(size_bytes=4000)) == 0
    assert await refused(flow, call(size_bytes=4000)) == 600
    clock.advance(0.6)
    assert await refused(flow, call(size_bytes=4000)) == 0
    clock.advance(10)
    assert await refused(flow, call(size_bytes=50_000)) == 0
    clock.advance(9)
    assert await refused(flow, call(size_bytes=1)) == 1


async def test_limits_of_topics_and_of_everything_together() -> None:
    """E-245: a topic's limit does not affect others, the limit without names counts all."""
    flow = FlowControl(VirtualClock())
    flow.replace([FlowRule(FlowUnit.REQUESTS, 2, topic="slow"), FlowRule(FlowUnit.REQUESTS, 5)])
    answers = [await refused(flow, call(topic=topic)) > 0 for topic in ("slow", "slow", "slow", "t", "t", "t", "t")]
    assert answers == [False, False, True, False, False, False, True]
    assert flow.refused_counts == [1, 1]


@pytest.mark.parametrize("method", ["ReceiveMessage", "PullMessage", "UpdateOffset", "GetOffset", "QueryOffset"])
async def test_a_topics_limit_counts_who_names_it_by_a_queue(method: str) -> None:
    """As most calls of RocketMQ's consumers do."""
    request = getattr(service_pb2, f"{method}Request")()
    request.message_queue.topic.name = "slow"
    flow = FlowControl(VirtualClock())
    flow.replace([FlowRule(FlowUnit.REQUESTS, 1, topic="slow")])
    asked = InterceptedCall(f"MessagingService/{method}", request, "peer")
    assert [await refused(flow, asked) > 0 for _ in range(2)] == [False, True]


def test_a_stream_goes_on_when_its_limit_is_lifted() -> None:
    """It waits for a turn in a thousand seconds, and checks again before; the wait is counted once."""
    clock = VirtualClock()
    flow = FlowControl(clock)
    batch = call("ProducerService/Produce")

    async def scenario() -> tuple[list[int], float]:
        flow.replace([FlowRule(FlowUnit.REQUESTS, 0.001)])
        await flow.admit(batch)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(flow.admit(batch))
            await clock.sleep(5)
            counted = flow.refused_counts
            flow.replace([])
        return counted, clock.monotonic_s()

    counted, at_s = clock.run(scenario)
    assert counted == [1]
    assert at_s < 10


async def test_streams_are_slowed_down_instead_of_refused() -> None:
    """A batch beyond the limit waits for its turn; the producer is only slowed down."""
    clock = VirtualClock()
    flow = FlowControl(clock)
    flow.replace([FlowRule(FlowUnit.REQUESTS, 2)])
    for _ in range(2):
        await flow.admit(call("ProducerService/Produce"))
    waited: list[float] = []
    sleeping = clock.sleep

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        clock.advance(seconds)
        await sleeping(0)

    clock.sleep = sleep  # type: ignore[method-assign]
    await flow.admit(call("ProducerService/Produce"))
    assert waited == [0.5]


def test_the_file_is_read_and_wrong_ones_are_named() -> None:
    """Rules with defaults; the error for a wrong unit, key, number or syntax names the place."""
    text = '[[rule]]\nper_second = 5\n[[rule]]\nunit = "bytes"\nper_second = 1.5\nmethod = "A/B"\ntopic = "t"\n'
    assert parse_flow_rules(text) == [FlowRule(FlowUnit.REQUESTS, 5), FlowRule(FlowUnit.BYTES, 1.5, "A/B", "t")]
    assert parse_flow_rules("") == []
    for wrong in ("x = 1", "[[rule]]\nunits = 1", "[[rule]]\nunit = 'x'\nper_second = 1", "[[rule]]", "[",
                  "[[rule]]\nper_second = 0", "[[rule]]\nper_second = 1\nmethod = 'x'",
                  "rule = 1", "rule = ['x']"):  # fmt: skip
        with pytest.raises(Invalid):
            parse_flow_rules(wrong)


class Recorder:
    """Records calls, and refuses if the test sets it."""

    def __init__(self, name: str, seen: list[str], error: Exception | None = None) -> None:
        self._name, self._seen, self._error = name, seen, error

    async def before(self, call: Any) -> None:
        self._seen.append(f"{self._name} before")
        if self._error is not None:
            raise self._error

    async def after(self, call: Any) -> None:
        self._seen.append(f"{self._name} after")

    async def on_error(self, call: Any, error: BaseException) -> None:
        self._seen.append(f"{self._name} error")


async def test_interceptors_are_called_in_order_and_a_refusal_is_told_to_those_before() -> None:
    """E-242: `before` in order, each followed by one `after` or one error. A refusal goes to the caller."""
    seen: list[str] = []
    chain = InterceptorChain([Recorder("a", seen), Recorder("b", seen)])
    await chain.before(call())
    await chain.after(call())
    assert seen == ["a before", "b before", "a after", "b after"]
    seen.clear()
    chain = InterceptorChain([Recorder("a", seen), Recorder("b", seen, Overloaded()), Recorder("c", seen)])
    with pytest.raises(Overloaded):
        await chain.before(call())
    assert seen == ["a before", "b before", "a error"]
