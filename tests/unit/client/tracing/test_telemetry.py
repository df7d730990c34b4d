"""Spans and metrics of the client, in a process that has set up OpenTelemetry."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span, SpanKind

from ortoo.client import (
    App,
    Client,
    ConsumerSettings,
    HandlerOptions,
    Invalid,
    Message,
    PoppedMessage,
    PullSettings,
    ReceivedMessage,
    TransactionVerdict,
    connect,
)
from ortoo.client.blocking.loop_thread import new_loop_thread
from ortoo.client.tracing.telemetry import telemetry_of_process
from ortoo.common.process.clock import SystemClock
from ortoo.testing.pytest_broker import Broker
from tests.integration.pull_group import beside

pytestmark = pytest.mark.ortoo
Handler = Callable[[Any], Awaitable[None] | None]


class Recorded:
    """The spans and metrics of the process."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self, kind: SpanKind) -> list[ReadableSpan]:
        """The ended spans of a kind."""
        return [span for span in self.exporter.get_finished_spans() if span.kind is kind]

    def metrics(self) -> dict[str, list[Any]]:
        """The data points of each metric."""
        data = self.reader.get_metrics_data()
        assert data is not None
        [resource] = data.resource_metrics
        return {one.name: list(one.data.data_points) for scope in resource.scope_metrics for one in scope.metrics}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """OpenTelemetry as an application sets it up, for one test."""
    recorded = Recorded()
    meters = MeterProvider([recorded.reader])
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", recorded.provider)
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", meters)
    yield recorded
    recorded.provider.shutdown()
    meters.shutdown()


def ids(span: ReadableSpan | Span) -> tuple[int, int]:
    """The trace id and the id of a span."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def parent_ids(span: ReadableSpan) -> tuple[int, int] | None:
    """The trace id and the id of the parent."""
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


async def _pushed(mq: Client, handler: Handler) -> None:
    async with mq.consumer("g", "one", ConsumerSettings(from_beginning=True)) as consumer:
        await consumer.run(handler)


async def _pulled(mq: Client, handler: Handler) -> None:
    async with mq.pull_consumer("g", "one", PullSettings(from_beginning=True)) as consumer:
        await consumer.run(handler)


async def _in_order(mq: Client, handler: Handler) -> None:
    async with mq.pull_consumer("g", "one", PullSettings(from_beginning=True)) as consumer:
        await consumer.run_in_order(handler)


async def _popped(mq: Client, handler: Handler) -> None:
    async with mq.pop_consumer("g", "one") as consumer:
        await consumer.run(handler)


async def _program(mq: Client, handler: Handler) -> None:
    app = App("g")

    @app.consumer("one")
    async def handle(message: PoppedMessage) -> None:
        result = handler(message)
        if result is not None:
            await result

    async with app.running(mq):
        await asyncio.Event().wait()


KINDS: dict[str, Callable[[Client, Handler], Coroutine[Any, Any, None]]] = {
    "push": _pushed,
    "pull": _pulled,
    "in order": _in_order,
    "pop": _popped,
    "program": _program,
}


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_handler_continues_the_trace_of_the_sender(
    broker: Broker, recorded: Recorded, kind: str, is_plain: bool
) -> None:
    """The span of the handler is below that of the send, and current in the handler, also in a thread."""
    await broker.create_topic("one", queues=1)
    current: list[tuple[int, int]] = []
    tracer = recorded.provider.get_tracer("application")

    def record(message: Any) -> None:
        with tracer.start_as_current_span("own") as span:
            current.append((span.get_span_context().trace_id, span.get_span_context().span_id))
        assert message.trace_context == message.properties["traceparent"]

    async def record_on_loop(message: Any) -> None:
        record(message)

    async with connect() as mq:
        running = beside(KINDS[kind](mq, record if is_plain else record_on_loop))
        async with mq.producer("one") as producer:
            with tracer.start_as_current_span("request") as request:
                await producer.send(b"hello")
        async with asyncio.timeout(60):
            while len(recorded.spans(SpanKind.CONSUMER)) < 1:
                await broker.clock.advance("100ms")
        running.cancel()
    [sent], [processed] = recorded.spans(SpanKind.PRODUCER), recorded.spans(SpanKind.CONSUMER)
    [own] = [span for span in recorded.exporter.get_finished_spans() if span.name == "own"]
    assert (sent.name, processed.name) == ("send one", "process one")
    assert parent_ids(sent) == ids(request)
    assert parent_ids(processed) == ids(sent)
    assert parent_ids(own) == ids(processed)
    assert current == [ids(own)]
    assert processed.attributes is not None
    assert processed.attributes["messaging.consumer.group.name"] == "g"
    metrics = recorded.metrics()
    for name in ("messaging.client.sent.messages", "messaging.client.consumed.messages"):
        assert [point.value for point in metrics[name]] == [1]
    for name in ("messaging.client.operation.duration", "messaging.process.duration"):
        [point] = metrics[name]
        assert (point.count, point.explicit_bounds[0]) == (1, 0.005)


async def test_every_way_of_sending_has_a_span(broker: Broker, recorded: Recorded) -> None:
    """Single messages have a span each, many messages share one. A context that a message has is kept and linked."""
    await broker.create_topic("one", queues=1)
    own = f"00-{'4b' * 16}-{'f0' * 8}-01"

    async def verdict(check: object) -> TransactionVerdict:
        return TransactionVerdict.UNKNOWN

    async with connect() as mq, mq.producer("one") as producer:
        await producer.send(b"1")
        await producer.send_once(b"2", "id-2")
        await (await producer.enqueue(b"3"))
        await producer.enqueue_nowait(b"4")
        await (await producer.send_many([b"5", b"6", b"7"]))
        await (await producer.send_many([]))
        await producer.send(Message(b"8", trace_context=own))
        async with mq.transactional_producer("one", "g", verdict) as transactions:
            await (await transactions.begin(Message(b"9"))).commit()
        with pytest.raises(Invalid, match="body"):
            await producer.send(b"")
        await broker.clock.advance("1s")
    spans = recorded.spans(SpanKind.PRODUCER)
    counts = [(span.attributes or {}).get("messaging.batch.message_count", 1) for span in spans]
    assert sorted(counts) == [0, 1, 1, 1, 1, 1, 1, 1, 3]  # type: ignore[type-var]
    stored = {one.message.body: one.message for one in await broker.messages("one")}
    contexts = [stored[b"%d" % n].trace_context for n in range(1, 10)]
    assert None not in contexts, stored
    assert contexts[4] == contexts[5] == contexts[6]
    assert contexts[7] == own
    assert len(set(contexts)) == 7
    [linked] = [span for span in spans if span.links]
    assert f"{linked.links[0].context.span_id:x}" == "f0" * 8
    [failed] = [span for span in spans if (span.attributes or {}).get("error.type")]
    assert (failed.attributes or {})["error.type"] == "Invalid"


async def test_a_batch_is_linked_to_its_senders(broker: Broker, recorded: Recorded) -> None:
    """The span of several messages is a trace of its own, with a link to each sender."""
    await broker.create_topic("one", queues=1)
    handled: list[int] = []

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        handled.append(len(messages))

    async with connect() as mq:
        async with mq.producer("one") as producer:
            for _ in range(3):
                producer.enqueue_nowait(b"x")
        async with mq.pull_consumer("g", "one", PullSettings(from_beginning=True)) as consumer:
            running = beside(consumer.run_batches(handle, HandlerOptions(batch_messages_max=8)))
            async with asyncio.timeout(60):
                while sum(handled) < 3:
                    await broker.clock.advance("100ms")
            running.cancel()
    senders = {ids(span) for span in recorded.spans(SpanKind.PRODUCER)}
    batches = [span for span in recorded.spans(SpanKind.CONSUMER) if span.links]
    linked = {(link.context.trace_id, link.context.span_id) for span in batches for link in span.links}
    assert linked <= senders
    assert len(linked) == 3
    assert all(span.parent is None for span in batches)


async def test_a_failed_handler_and_a_loop_of_the_application(broker: Broker, recorded: Recorded) -> None:
    """The span of a failed attempt has the error. `processing` makes the span of messages without a handler."""
    await broker.create_topic("one", queues=1)

    async def fail(message: PoppedMessage) -> None:
        if message.attempt == 1:
            raise KeyError("no")

    inside = 0
    async with connect() as mq:
        await broker.send("one", b"plain")
        running = beside(_popped(mq, fail))
        async with asyncio.timeout(60):
            while len(recorded.spans(SpanKind.CONSUMER)) < 2:
                await broker.clock.advance("1s")
        running.cancel()
        async with mq.pop_consumer("other", "one") as consumer:
            for message in await consumer.pop():
                with mq.processing(message, group="other"):
                    inside = trace.get_current_span().get_span_context().span_id
                await message.ack()
        assert not trace.get_current_span().get_span_context().is_valid
    failed, repeated, own = recorded.spans(SpanKind.CONSUMER)
    assert (failed.attributes or {})["error.type"] == "KeyError"
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert "error.type" not in (repeated.attributes or {})
    assert ids(own)[1] == inside


async def test_it_can_be_switched_off(broker: Broker, recorded: Recorded) -> None:
    """A client without telemetry makes no spans, and adds nothing to messages."""
    await broker.create_topic("one", queues=1)
    async with connect(telemetry=False) as mq, mq.producer("one") as producer:
        with mq.processing():
            await producer.send(b"x")
    assert recorded.exporter.get_finished_spans() == ()
    [stored] = await broker.messages("one")
    assert (stored.message.trace_context, dict(stored.message.properties)) == (None, {})


def test_the_blocking_client_sees_the_current_span(recorded: Recorded) -> None:
    """The context variables of the caller's thread are those of its call on the client's loop."""

    async def current() -> Span:
        return trace.get_current_span()

    thread = new_loop_thread()
    try:
        with recorded.provider.get_tracer("application").start_as_current_span("request") as request:
            assert thread.run(current()) is request
        assert not thread.run(current()).get_span_context().is_valid
    finally:
        thread.close()


def test_a_process_without_opentelemetry_imports_none_of_it() -> None:
    """A client does not load OpenTelemetry, or its own code for it."""
    program = (
        "import asyncio, sys\n"
        "from ortoo.client import connect\n"
        "async def main():\n"
        "    async with connect('127.0.0.1:1') as mq:\n"
        "        mq.producer('t')\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if 'opentelemetry' in name or 'client.tracing.telemetry' in name])\n"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


def test_an_import_of_opentelemetry_sets_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries import the SDK for themselves; only a provider of the application switches telemetry on."""
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", None)
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", None)
    assert telemetry_of_process(SystemClock()) is None
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", MeterProvider([]))
    assert telemetry_of_process(SystemClock()) is not None


class OtherMeterProvider(NoOpMeterProvider):
    """A provider that is not of OpenTelemetry's SDK, such as that of a vendor's agent."""


def test_each_provider_of_the_application_switches_telemetry_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that implements only the API, and one that an environment variable names."""
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", None)
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", OtherMeterProvider())
    assert telemetry_of_process(SystemClock()) is not None
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", NoOpMeterProvider())
    assert telemetry_of_process(SystemClock()) is None


def test_a_provider_that_the_environment_names_switches_telemetry_on() -> None:
    """OpenTelemetry imports it when it is first asked for, which is after this look."""
    program = (
        "import opentelemetry.metrics\n"
        "from ortoo.client.tracing.telemetry import telemetry_of_process\n"
        "from ortoo.common.process.clock import SystemClock\n"
        "print(telemetry_of_process(SystemClock()) is not None)\n"
    )
    for environment, found in ({"OTEL_PYTHON_METER_PROVIDER": "sdk_meter_provider"}, "True"), ({}, "False"):
        command = [sys.executable, "-c", program]
        assert subprocess.check_output(command, text=True, env={**os.environ, **environment}) == f"{found}\n"
