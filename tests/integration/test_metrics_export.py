"""Metrics as an OTLP receiver gets them, beside those that Prometheus scrapes (E-246)."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.sdk.metrics.export import MetricExportResult

from ortoo.client import connect
from ortoo.common.cluster.service_settings import ServiceSettings
from ortoo.common.errors import Invalid
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.telemetry.export import MetricsExport
from ortoo.common.telemetry.metrics import Metrics
from ortoo.enode.settings import load
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.listening import serve_servicer
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.scrape import scraped


class Receiver(metrics_service_pb2_grpc.MetricsServiceServicer):
    """Stores the newest state of every metric, by (service, name)."""

    def __init__(self) -> None:
        self.metrics: dict[tuple[str, str], Any] = {}
        self.address = ""

    async def Export(
        self, request: metrics_service_pb2.ExportMetricsServiceRequest, context: object
    ) -> metrics_service_pb2.ExportMetricsServiceResponse:
        for resource in request.resource_metrics:
            about = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_metrics:
                self.metrics.update({(about["service.name"], metric.name): metric for metric in scope.metrics})
        return metrics_service_pb2.ExportMetricsServiceResponse()

    async def metric(self, service: str, name: str, value: float) -> Any:
        """Wait until the first series of a metric has a value; return the metric."""
        async with asyncio.timeout(60):
            while True:
                found = self.metrics.get((service, name))
                if found is not None:
                    points = getattr(found, found.WhichOneof("data")).data_points
                    if points and (points[0].as_int or points[0].as_double) == value:
                        return found
                await SystemClock().sleep(0.05)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A real OTLP/gRPC receiver."""
    receiver = Receiver()
    async with serve_servicer(
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server, receiver
    ) as receiver.address:
        yield receiver


async def test_a_receiver_gets_what_prometheus_scrapes(tmp_path: Path, receiver: Receiver) -> None:
    """Each role sends sums, gauges and histograms under the same names and labels, and its last values at a stop."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    sent = {"metrics_endpoint": f"http://{receiver.address}", "metrics_interval_s": 0.2}
    settings = {role: dict(sent) for role in ("namesrv", "snode")}
    settings["enode"] = {**sent, "metrics_address": address}
    async with open_cluster(tmp_path, settings=settings) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t")
        async with mq.producer("t") as producer:
            for sending in await producer.send_many([b"x"] * 7):
                await sending
        stored = await receiver.metric("ortoo-enode", "rocketmq_messages_in_total", 7)
        assert stored.sum.is_monotonic
        labels = {one.key: one.value.string_value for one in stored.sum.data_points[0].attributes}
        assert labels == {"topic": "t"}
        await receiver.metric("ortoo-namesrv", "rocketmq_topic_number", 1)
        await receiver.metric("ortoo-snode", "ortoo_ready", 1)
        async with asyncio.timeout(60):
            while ("ortoo-snode", "rocketmq_rpc_latency") not in receiver.metrics:
                await SystemClock().sleep(0.05)
        calls = receiver.metrics["ortoo-snode", "rocketmq_rpc_latency"].histogram.data_points
        assert sum(point.count for point in calls) > 0
        assert all(len(point.bucket_counts) == len(point.explicit_bounds) + 1 for point in calls)
        names = {name for service, name in receiver.metrics if service == "ortoo-enode"}
        families = {
            name.removesuffix("_count") for name in await scraped(address) if not name.endswith(("_bucket", "_sum"))
        }
        assert families <= names | {"rocketmq_consumer_lag_messages", "rocketmq_consumer_lag_latency"}
        before = receiver.metrics["ortoo-enode", "ortoo_ready"]
        assert before.gauge.data_points[0].as_int == 1
        await cluster.close("enode-0")
        await receiver.metric("ortoo-enode", "ortoo_ready", 0)


async def test_a_receiver_that_is_away_costs_nothing(tmp_path: Path) -> None:
    """Without a receiver at the endpoint the cluster serves as usual, and stops."""
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    settings = {
        role: {"metrics_endpoint": nowhere, "metrics_interval_s": 0.05} for role in ("namesrv", "enode", "snode")
    }
    async with open_cluster(tmp_path, settings=settings) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t")
        async with mq.producer("t") as producer:
            assert (await producer.send(b"x")).offset == 0


async def test_a_stop_sends_behind_what_is_being_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a receiver is down the exporter reconnects; the final export must not use the exporter at the same time."""
    settings = ServiceSettings(name="e", metrics_endpoint="http://127.0.0.1:1", metrics_interval_s=0.0)
    export = MetricsExport("enode", settings, Metrics(), SystemClock())
    exporting, begun, go_on = threading.Lock(), threading.Event(), threading.Timer(0.2, lambda: None)

    def one_at_a_time(*_: object) -> MetricExportResult:
        assert exporting.acquire(blocking=False)
        begun.set()
        go_on.join()
        exporting.release()
        return MetricExportResult.SUCCESS

    monkeypatch.setattr(export._exporter, "export", one_at_a_time)
    go_on.start()
    async with Background("sending") as background:
        background.spawn("export", export.run())
        await asyncio.to_thread(begun.wait)
    await export.close()


def test_a_wrong_endpoint_is_refused() -> None:
    """A value that is not a URL with host and port is named before anything starts."""
    for name in ("METRICS_ENDPOINT", "TRACE_ENDPOINT"):
        with pytest.raises(Invalid, match="expected http://host:port"):
            load({f"ORTOO_ENODE_{name}": "collector:4317"})
