"""Metrics: read when asked, within a budget, in the text that Prometheus reads."""

import asyncio
import contextlib
import gzip
import subprocess
from collections.abc import Iterator

import pytest

from ortoo.common.errors import Conflict
from ortoo.common.grpc.limits.connections import connections_to
from ortoo.common.machine.descriptors import FEW, Descriptors
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.long_work import SLICE_ITEMS
from ortoo.common.telemetry import endpoint as metrics_endpoint
from ortoo.common.telemetry.endpoint import CONNECTIONS_MAX, MetricsEndpoint
from ortoo.common.telemetry.histogram import Histogram
from ortoo.common.telemetry.metrics import OTHER, Metrics
from ortoo.common.telemetry.process_metrics import descriptor_findings
from ortoo.common.telemetry.text import chunks
from ortoo.verification.servers.scrape import families, get
from tests.deploy.prometheus import PROMTOOL


def test_histogram_counts_each_value_once() -> None:
    """A value on a bound belongs to that bound's bucket; one beyond all belongs to the last."""
    histogram = Histogram((1.0, 10.0))
    for value in (0.5, 1.0, 1.1, 10.0, 11.0):
        histogram.observe(value)
    assert (histogram.counts, histogram.count, histogram.total) == ([2, 2, 1], 5, 23.6)


def example() -> Metrics:
    """One metric of each kind, with every sign that needs care."""
    metrics = Metrics()
    latency = Histogram((1.0, 10.0))
    latency.observe(5)
    metrics.counter("messages_total", "Messages.", lambda: {('a"\\\nb',): 7, ("t",): 0}, labels=("topic",))
    metrics.gauge("lag", "Lag.", lambda: [(("t", "g"), 0), (("t", "h"), 3)], labels=("topic", "group"))
    metrics.histogram("latency_seconds", "Latency.", lambda: {("Send",): latency}, labels=("method",))
    return metrics


def test_text_has_every_value() -> None:
    """Prometheus' own client reads all counted values, and the label values as they were before they were escaped."""
    found = families("".join(chunks(example())))
    assert found["messages_total"] == {(("topic", 'a"\\\nb'),): 7, (("topic", "t"),): 0}
    assert found["lag"][("group", "h"), ("topic", "t")] == 3
    assert found["latency_seconds_bucket"][("le", "10"), ("method", "Send")] == 1
    assert found["latency_seconds_bucket"][("le", "+Inf"), ("method", "Send")] == 1
    assert found["latency_seconds_sum"][(("method", "Send"),)] == 5


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ('lag{topic="t} 1', "Invalid|could not convert"),
        ("lag 1 2 3 x", "could not convert"),
        ("lag one", "could not convert"),
        ("lag 1\nlag 2", "two series"),
    ],
)
def test_a_wrong_text_is_not_read(wrong: str, reason: str) -> None:
    """A malformed line or a series that is there twice fails every test that scrapes it."""
    with pytest.raises(ValueError, match=reason):
        families(f"# HELP lag Lag.\n# TYPE lag gauge\n{wrong}\n")


@pytest.mark.skipif(not PROMTOOL, reason="NOT CHECKED, no promtool; install Prometheus")
def test_text_is_what_prometheus_reads() -> None:
    """Prometheus' own tool finds no mistakes in the text."""
    text = "".join(chunks(example()))
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_zeros_can_be_left_out() -> None:
    """Labelled gauges that are 0 are most of a quiet cluster; without them counters and other gauges stay."""
    found = families("".join(chunks(example(), zeros=False)))
    assert list(found["lag"]) == [(("group", "h"), ("topic", "t"))]
    assert (("topic", "t"),) in found["messages_total"]


def test_budget_adds_up_the_rest() -> None:
    """More series than the budget become one series with the label value _other, and the sum stays right."""
    metrics = Metrics(series_max=10)
    metrics.counter("many_total", "Many.", lambda: {(str(n),): 1 for n in range(25)}, labels=("topic",))
    found = families("".join(chunks(metrics)))["many_total"]
    assert (len(found), sum(found.values()), found[(("topic", OTHER),)]) == (10, 25, 16)
    assert families("".join(chunks(metrics)))["ortoo_metric_series_over_budget"] == {(): 16}


def test_what_is_gone_is_not_told() -> None:
    """A series exists exactly as long as its source."""
    topics = {("t",): 1, ("u",): 2}
    metrics = Metrics()
    metrics.gauge("size", "Size.", lambda: topics, labels=("topic",))
    assert len(families("".join(chunks(metrics)))["size"]) == 2
    del topics["t",]
    assert list(families("".join(chunks(metrics)))["size"]) == [(("topic", "u"),)]


async def test_endpoint_answers_scrapes_and_probes() -> None:
    """/metrics is compressed on request, /readyz returns the given state, and wrong requests are refused."""
    ready, scrapes = [True], list[float]()
    metrics = example()
    metrics.gauge("wide", "Wide.", lambda: [((str(n),), n) for n in range(2000)], labels=("n",))
    endpoint = MetricsEndpoint(
        "127.0.0.1:0", metrics, ready=lambda: ready[0], clock=SystemClock(), on_scrape=scrapes.append
    )
    async with endpoint:
        plain = await get(endpoint.address, "/metrics")
        zipped = await get(endpoint.address, "/metrics", "Accept-Encoding: gzip")
        assert "Content-Encoding: gzip" in zipped.headers
        assert gzip.decompress(zipped.body) == plain.body
        assert len(zipped.body) < len(plain.body) / 3
        assert len(scrapes) == 2
        assert [(await get(endpoint.address, path)).status for path in ("/healthz", "/readyz", "/x")] == [200, 200, 404]
        ready[0] = False
        assert (await get(endpoint.address, "/readyz")).status == 503
        with pytest.raises(Conflict, match="metrics_address"):
            async with MetricsEndpoint(
                endpoint.address, metrics, ready=lambda: True, clock=SystemClock(), on_scrape=scrapes.append
            ):
                pass


async def test_idle_connections_keep_no_health_check_out_and_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest connections are ended when there are too many, so that the newest is always answered."""
    monkeypatch.setattr(metrics_endpoint, "REQUEST_TIMEOUT_S", 3600.0)  # else time alone ends them
    endpoint = MetricsEndpoint(
        "127.0.0.1:0", example(), ready=lambda: True, clock=SystemClock(), on_scrape=lambda _: None
    )
    async with endpoint:
        host, _, port = endpoint.address.rpartition(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(4 * CONNECTIONS_MAX)]
        for reader, _ in idle[:-CONNECTIONS_MAX]:
            with contextlib.suppress(OSError):
                assert await reader.read() == b""
        assert len(connections_to({int(port)})) <= CONNECTIONS_MAX
        assert (await get(endpoint.address, "/healthz")).status == 200
        for _, writer in idle:
            writer.transport.abort()


@pytest.mark.parametrize(
    ("limit", "used", "name"),
    [
        (FEW, 100, None),
        (FEW - 1, 100, "low file descriptor limit"),
        (FEW, FEW - 1, "file descriptors exhausted"),
        (256, 256, "file descriptors exhausted"),
    ],
)
def test_an_operator_is_told_of_a_low_limit_and_of_one_that_is_reached(limit: int, used: int, name: str | None) -> None:
    """The limit is named. A low one is advice; a used-up one is serious, and hides the advice."""
    found = list(descriptor_findings(Descriptors(limit), used))
    assert [one.name for one in found] == ([name] if name else [])
    for one in found:
        assert str(limit) in one.observed
        assert one.critical is (name == "file descriptors exhausted")


def test_a_family_is_read_in_slices_and_is_one_family_in_the_text() -> None:
    """A family of many series has one head, and no series is lost or repeated between the slices."""
    metrics = Metrics()
    metrics.gauge("wide", "Wide.", lambda: (((str(n),), n) for n in range(1_000)), labels=("n",))
    parts = list(chunks(metrics))
    assert len(parts) >= 1_000 // SLICE_ITEMS
    assert max(part.count("\n") for part in parts) <= SLICE_ITEMS + 2
    assert "".join(parts).count("# HELP wide") == 1
    assert sorted(families("".join(parts))["wide"].values()) == list(range(1_000))


def test_values_of_several_families_are_prepared_before_each_reading() -> None:
    """The preparation runs in slices too, and a reading has its newest values."""
    metrics, counted, reads = Metrics(), dict[tuple[str, ...], int](), list[int]()

    def count() -> Iterator[None]:
        reads.append(len(reads))
        for _ in range(3 * SLICE_ITEMS):
            yield
        counted["n",] = len(reads)

    metrics.prepare(count)
    metrics.gauge("counted", "Counted.", lambda: counted, labels=("n",))
    parts = list(chunks(metrics))
    assert parts[:3] == ["", "", ""]
    assert families("".join(parts))["counted"] == {(("n", "n"),): 1}
    assert families("".join(chunks(metrics)))["counted"] == {(("n", "n"),): 2}
