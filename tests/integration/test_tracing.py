"""Traces of messages through the cluster, as an OTLP receiver gets them."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from ortoo.client import ConsumerSettings, Message, PullSettings, connect
from ortoo.common.process.clock import SystemClock
from ortoo.common.records.batch import encode
from ortoo.common.telemetry.tracing import sampled_contexts
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.listening import serve_servicer
from ortoo.verification.servers.processes import process_cluster

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = f"00-{TRACE}-{PARENT}-01"
NOT_SAMPLED = f"00-{TRACE[::-1]}-{PARENT}-00"


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Stores every span: (service, name, trace id, parent id, attributes)."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, str, str, dict[str, str]]] = []
        self.ids: list[str] = []
        """The id of each span, in the same order."""
        self.links: dict[str, list[str]] = {}
        """Span id to the ids of its linked spans."""
        self.kinds: dict[str, set[str]] = {}
        """The kinds of spans of a name."""
        self.failed: set[str] = set()
        """Ids of spans that ended with an error."""
        self.address = ""
        self.tenants: set[str] = set()
        """The values of a header that the environment of the processes adds."""

    async def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        self.tenants |= {str(value) for name, value in context.invocation_metadata() or () if name == "x-tenant"}
        for resource in request.resource_spans:
            about = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    attributes = {a.key: a.value.string_value or str(a.value.int_value) for a in span.attributes}
                    ids = (span.trace_id.hex(), span.parent_span_id.hex())
                    self.spans.append((about["service.name"], span.name, *ids, attributes))
                    self.ids.append(span.span_id.hex())
                    self.kinds.setdefault(span.name, set()).add(Span.SpanKind.Name(span.kind))
                    self.links[span.span_id.hex()] = [link.span_id.hex() for link in span.links]
                    if span.status.code == Status.STATUS_CODE_ERROR:
                        self.failed.add(span.span_id.hex())
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A real OTLP/gRPC receiver."""
    receiver = Receiver()
    async with serve_servicer(trace_service_pb2_grpc.add_TraceServiceServicer_to_server, receiver) as receiver.address:
        yield receiver


async def test_one_message_is_followed_through_three_processes(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publish, store, push and process each have one span, below the producer's. Other messages have none (E-249)."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=shop")
    endpoint = {"TRACE_ENDPOINT": f"http://{receiver.address}"}
    store = {"STORE_SEGMENT_BYTES": 4 << 20, "STORE_HEADROOM_BYTES": 0}
    environ: dict[str, dict[str, object]] = {"snode": {**endpoint}, "enode": {**endpoint, **store}}
    async with process_cluster(tmp_path, environ=environ) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t")
        async with mq.producer("t") as producer:
            await producer.send(Message(b"traced", trace_context=CONTEXT))
            await producer.send(Message(b"not sampled", trace_context=NOT_SAMPLED))
            await producer.send(Message(b"plain"))
        async with mq.consumer("g", "t", ConsumerSettings(from_beginning=True, ack_interval_ms=20)) as consumer:
            seen = 0
            async for message in consumer:
                message.ack()
                seen += 1
                if message.body == b"traced":
                    assert message.message().trace_context == CONTEXT
                if seen == 3:
                    break
        wanted = [
            ("ortoo-enode", "ortoo store"),
            ("ortoo-snode", "ortoo process"),
            ("ortoo-snode", "ortoo publish"),
            ("ortoo-snode", "ortoo push"),
        ]
        async with asyncio.timeout(60):
            while len(receiver.spans) < len(wanted):
                await SystemClock().sleep(0.05)
    assert sorted(span[:2] for span in receiver.spans) == wanted
    assert receiver.tenants == {"shop"}
    assert {span[2:4] for span in receiver.spans} == {(TRACE, PARENT)}
    by_name = {name: attributes for _, name, _, _, attributes in receiver.spans}
    assert by_name["ortoo process"]["messaging.consumer.group.name"] == "g"
    assert by_name["ortoo push"]["messaging.destination.name"] == "t"
    assert by_name["ortoo store"]["ortoo.enode"] == "enode-0"
    assert receiver.kinds == {
        "ortoo publish": {"SPAN_KIND_PRODUCER"},
        "ortoo store": {"SPAN_KIND_INTERNAL"},
        "ortoo push": {"SPAN_KIND_CONSUMER"},
        "ortoo process": {"SPAN_KIND_CONSUMER"},
    }


async def test_pulls_and_pops_are_seen_as_pushes_are(tmp_path: Path, receiver: Receiver) -> None:
    """Each is a span of the kind CONSUMER with its group, in the producer's trace. Other messages have none."""
    settings = {"snode": {"trace_endpoint": f"http://{receiver.address}"}}
    async with open_cluster(tmp_path, settings=settings) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t", queue_count=1)
        async with mq.producer("t") as producer:
            await producer.send(Message(b"traced", trace_context=CONTEXT))
            await producer.send(Message(b"not sampled", trace_context=NOT_SAMPLED))
        async with mq.pull_consumer("pullers", "t", PullSettings(from_beginning=True)) as puller:
            batch = await puller.poll()
            assert batch is not None
            batch.ack()
        async with mq.pop_consumer("poppers", "t") as popper:
            for message in await popper.pop():
                await message.ack()
        async with asyncio.timeout(60):
            while not {"ortoo pull", "ortoo pop"} <= {span[1] for span in receiver.spans}:
                await SystemClock().sleep(0.05)
    for name, group in (("ortoo pull", "pullers"), ("ortoo pop", "poppers")):
        assert receiver.kinds[name] == {"SPAN_KIND_CONSUMER"}
        [(_, _, trace, parent, attributes)] = [span for span in receiver.spans if span[1] == name]
        assert (trace, parent, attributes["messaging.consumer.group.name"]) == (TRACE, PARENT, group)


async def test_a_second_delivery_is_linked_to_the_first(tmp_path: Path, receiver: Receiver) -> None:
    """The span of an unacknowledged delivery ends with an error; the spans of the next delivery link to it (E-249)."""
    settings = {"snode": {"trace_endpoint": f"http://{receiver.address}"}}
    async with open_cluster(tmp_path, settings=settings) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t", queue_count=1)
        async with mq.producer("t") as producer:
            await producer.send(Message(b"traced", trace_context=CONTEXT))
        for acknowledged in (False, True):
            async with mq.consumer("g", "t", ConsumerSettings(from_beginning=True)) as consumer:
                async for message in consumer:
                    if acknowledged:
                        message.ack()
                    break
        async with asyncio.timeout(60):
            while [span[1] for span in receiver.spans].count("ortoo process") < 2:
                await SystemClock().sleep(0.05)
    told = [(name, span_id) for (_, name, *_), span_id in zip(receiver.spans, receiver.ids, strict=True)]
    first, second = (span_id for name, span_id in told if name == "ortoo process")
    assert (first in receiver.failed, second in receiver.failed) == (True, False)
    assert receiver.links[second] == [first]
    pushes = [span_id for name, span_id in told if name == "ortoo push"]
    assert [receiver.links[push] for push in pushes] == [[], [first]]


def test_looking_for_traces_costs_little() -> None:
    """A batch without traces, or with none that is sampled, costs microseconds; with 1 % sampled, hardly more."""
    plain = encode([Message(b"x" * 256)] * 3500, now_ms=1)
    messages = [Message(b"x" * 256, trace_context=CONTEXT if n % 100 == 0 else None) for n in range(3500)]
    sampled = encode(messages, now_ms=1)
    unsampled = encode([Message(b"x" * 128, trace_context=NOT_SAMPLED)] * 3500, now_ms=1)

    def cost_s(work: object, rounds: int) -> float:
        begun_s = time.process_time()
        for _ in range(rounds):
            work()  # type: ignore[operator]
        return (time.process_time() - begun_s) / rounds

    encoding_s = cost_s(lambda: encode(messages, now_ms=1), 20)
    assert sampled_contexts(plain.records) == []
    assert sampled_contexts(unsampled.records) == []
    assert len(sampled_contexts(sampled.records)) == 1
    assert len(sampled_contexts(encode(messages[:800], now_ms=1).records)) == 8
    assert cost_s(lambda: sampled_contexts(plain.records), 500) < 0.01 * encoding_s
    assert cost_s(lambda: sampled_contexts(unsampled.records), 500) < 0.03 * encoding_s
    assert cost_s(lambda: sampled_contexts(sampled.records), 500) < 0.03 * encoding_s


def test_processes_without_an_endpoint_import_no_opentelemetry() -> None:
    """Neither their code of spans nor the libraries, although these are installed here."""
    program = (
        "import asyncio, sys\n"
        "import ortoo.enode.app, ortoo.snode.app\n"
        "from ortoo.common.process.clock import SystemClock\n"
        "from ortoo.common.process.randomness import Randomness\n"
        "from ortoo.common.telemetry.tracing import open_tracing\n"
        "async def main():\n"
        "    async with open_tracing('snode', 's', '', clock=SystemClock(), randomness=Randomness()) as tracing:\n"
        "        print(tracing)\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).splitlines() == ["None", "[]"]


def test_malformed_contexts_are_not_traced() -> None:
    """No content of a producer's trace field makes a batch refused or slow."""
    for text in ("", "x", "00-zz-yy-01", CONTEXT.upper(), "é" * 100):
        batch = encode([Message(b"x", trace_context=text)], now_ms=1)
        assert sampled_contexts(batch.records) == []
        mixed = [Message(b"x", trace_context=one) for one in (NOT_SAMPLED, text, CONTEXT)]
        assert len(sampled_contexts(encode(mixed, now_ms=1).records)) == 1
    assert sampled_contexts(b"\xff" * 40) == []
