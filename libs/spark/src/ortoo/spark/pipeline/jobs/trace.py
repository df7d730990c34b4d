"""trace: latencies of messages from producer to disk, and numbers of retries and dead letters."""

from typing import Any

from ortoo.client import OrtooError
from ortoo.spark.core.link import link_to
from ortoo.spark.core.read_options import parse
from ortoo.spark.format.views import delivery_rows
from ortoo.spark.pipeline.runtime.progress import Say
from ortoo.spark.pipeline.runtime.report_page import ReportTable, new_figure, text_table, write_page
from ortoo.spark.pipeline.runtime.settings import PipelineSettings

_LATENCY = """
select topic, window.start as since, count(*) as messages, sum(octet_length(body)) as bytes,
       percentile_approx(latency_ms, 0.5) as p50, percentile_approx(latency_ms, 0.95) as p95,
       percentile_approx(latency_ms, 0.99) as p99, max(latency_ms) as slowest,
       count_if(latency_ms < 0) as clocks_apart
from (select *, unix_millis(stored_at) - unix_millis(born_at) as latency_ms from {messages})
group by topic, window(stored_at, {bucket})
order by topic, since
"""
_NAMES = ("topic", "since", "messages", "bytes", "p50 ms", "p95 ms", "p99 ms", "max ms", "clocks apart")


def trace(spark: Any, settings: PipelineSettings, say: Say) -> list[Any]:
    """Compute latencies of messages, and write trace.html, trace.png and trace.csv; returns the rows of latencies."""
    lake, job = settings.open_lake(), settings.trace
    folder = settings.output_folder("reports", job.output_path)
    frame = lake.read(spark)
    if job.where:
        frame = frame.where(job.where)
    rows = spark.sql(_LATENCY, messages=frame, bucket=job.bucket).collect()
    latency = ReportTable("From producer to disk", _NAMES, [tuple(row) for row in rows])
    attempts = _attempts(settings, say)
    note = (
        f"{sum(row.messages for row in rows):,} messages; latency is the store time minus the producer's time. "
        "“Clocks apart” counts messages with a negative latency."
    )
    page = write_page(folder, "trace", "Trace of messages", note, [latency, attempts], _figure(rows))
    csv = "\n".join(",".join(map(str, row)) for row in [[n.replace(" ", "_") for n in _NAMES], *rows])
    (folder / "trace.csv").write_text(csv + "\n")
    for line in text_table(ReportTable("", _NAMES, latency.rows[:20])):
        say(line)
    say(f"report: {page}")
    return list(rows)


def _attempts(settings: PipelineSettings, say: Say) -> ReportTable:
    names = ("group", "waiting for another attempt", "dead letters")
    try:
        rows = delivery_rows(
            link_to(settings.cluster), parse({**settings.cluster_options, "view": "deliveries"}, streaming=False)
        )
    except OrtooError as error:
        say(f"the cluster does not answer, so attempts are missing from the report: {error}")
        rows = []
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        of_group = found.setdefault(row["group"], {"retry": 0, "dead": 0})
        of_group[row["state"]] += row["messages"]
    return ReportTable(
        "Retries and dead letters", names, [(g, n["retry"], n["dead"]) for g, n in sorted(found.items())]
    )


def _figure(rows: list[Any]) -> Any:
    figure = new_figure()
    axes = figure.subplots()
    for topic in sorted({row.topic for row in rows})[:8]:
        own = [row for row in rows if row.topic == topic]
        axes.plot([row.since for row in own], [max(row.p50, 0) for row in own], marker="o", label=f"{topic} p50")
        axes.plot(
            [row.since for row in own],
            [max(row.p99, 0) for row in own],
            marker=".",
            linestyle="--",
            label=f"{topic} p99",
        )
    axes.set_ylabel("producer to disk, ms")
    axes.set_yscale("symlog")
    axes.grid(visible=True, alpha=0.3)
    if rows:
        axes.legend()
    figure.autofmt_xdate()
    return figure
