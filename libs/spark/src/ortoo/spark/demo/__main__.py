"""`make demo-spark`: every flight of 2013 through a broker into a lake, and United's flights back into a topic."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ortoo.cli.demo import flights
from ortoo.client import OrtooError, ProducerSettings, blocking
from ortoo.common.errors import Unavailable
from ortoo.common.logs.logger import configure
from ortoo.common.process.clock import SystemClock
from ortoo.spark import register
from ortoo.spark.demo.wind import live_report
from ortoo.spark.lake.table import Lake
from ortoo.spark.pipeline.jobs.archive import archive
from ortoo.spark.pipeline.jobs.compact import compact
from ortoo.spark.pipeline.jobs.replay import replay
from ortoo.spark.pipeline.jobs.trace import trace
from ortoo.spark.pipeline.runtime.progress import Say
from ortoo.spark.pipeline.runtime.report_page import ReportTable, new_figure, text_table, write_page
from ortoo.spark.pipeline.runtime.session import session
from ortoo.spark.pipeline.runtime.settings import (
    ArchiveSettings,
    LakeSettings,
    PipelineSettings,
    ReplaySettings,
    SparkSettings,
)

_CONF = ("spark.driver.memory=768m", "spark.sql.shuffle.partitions=4", "spark.driver.host=127.0.0.1")

_SQL = """
select flight.carrier, count(*) as flights, count(flight.dep_delay) as departed,
       avg(flight.dep_delay) as mean_delay, percentile_approx(flight.dep_delay, 0.5) as median_delay,
       100.0 * count_if(flight.dep_delay > 15) / count(flight.dep_delay) as late_percent
from (select from_json(cast(body as string), 'carrier string, dep_delay double') as flight from {messages})
group by flight.carrier order by mean_delay desc
"""
_NAMES = ("carrier", "flights", "departed", "mean delay, min", "median, min", "over 15 min late, %")

OUTPUT_FOLDER = Path(".ortoo/spark-demo")
"""The folder of the lake and the reports of a run; the next run deletes it."""


def main() -> int:
    """Run the demo; the exit code is 0 when every count is right and 1 otherwise."""
    argparse.ArgumentParser(prog="make demo-spark", description=__doc__).parse_args()
    configure(level="error")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    clock = SystemClock()
    began_s = clock.monotonic_s()

    def say(text: str) -> None:
        print(f"[{clock.monotonic_s() - began_s:6.1f} s] {text}", flush=True)

    shutil.rmtree(OUTPUT_FOLDER, ignore_errors=True)
    OUTPUT_FOLDER.mkdir(parents=True)
    say("starting a broker and Spark")
    try:
        with tempfile.TemporaryDirectory(prefix="ortoo-spark-demo-") as store, broker(Path(store)) as address:
            right = _run(address, OUTPUT_FOLDER.resolve(), say)
    except OrtooError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    say(f"the lake and the reports are in {OUTPUT_FOLDER}")
    return 0 if right else 1


def _run(address: str, folder: Path, say: Say) -> bool:
    settings = PipelineSettings(
        address=address,
        lake=LakeSettings(str(folder / "lake")),
        archive=ArchiveSettings(topics=("flights",), max_offsets_per_trigger=100_000, consumer_group="archive"),
        replay=ReplaySettings(topic="united", where=f"tag = '{flights.UNITED}'", create_queue_count=4, tasks=2),
        spark=SparkSettings("local[2]", _CONF),
    )
    with session(settings.spark) as spark:
        say("Spark is up")
        _send(address, say)
        return _pipeline(spark, settings, say)


def _send(address: str, say: Say) -> None:
    with blocking.connect(address) as mq:
        mq.admin.create_topic("flights", queue_count=4)
        with mq.producer("flights", ProducerSettings(batch_bytes_max=512 << 10)) as producer:
            sent = len(producer.send_many(flights.messages(flights.data_file())))
    say(f"sent {sent:,} flights; each is durable")


def _pipeline(spark: Any, settings: PipelineSettings, say: Say) -> bool:
    lake = Lake(settings.lake.path, settings.lake.format)
    outcome = archive(spark, settings, say, once=True)
    compact(replace(settings, compact=replace(settings.compact, open_days=0)), say)
    trace(spark, settings, say)
    messages = lake.read(spark)
    table = delays(spark, messages, settings.output_folder("reports", ""))
    for line in text_table(table):
        say(line)
    for _ in range(2):
        replay(spark, settings, say)
    register(spark)
    wind, is_same = live_report(
        spark, settings.address, Path(settings.output_folder("reports", "")) / "checkpoint-wind", say
    )
    for line in text_table(wind):
        say(line)
    say("the live report equals the batch report" if is_same else "THE LIVE REPORT DIFFERS from the batch report")
    source = spark.read.format("ortoo").options(address=settings.address, columns="offset")
    counts = {
        "flights in the topic": (source.option("subscribe", "flights").load().count(), flights.FLIGHTS),
        "flights in the lake": (messages.count(), flights.FLIGHTS),
        "flights in the report": (sum(int(str(row[1])) for row in table.rows), flights.FLIGHTS),
        "United's flights in the lake": (messages.where(settings.replay.where).count(), flights.UNITED_FLIGHTS),
        "United's flights replayed": (source.option("subscribe", "united").load().count(), flights.UNITED_FLIGHTS),
    }
    for name, (found, expected) in counts.items():
        say(f"{name:30} {found:>9,}  {'as expected' if found == expected else f'EXPECTED {expected:,}'}")
    is_right = (
        is_same
        and outcome is not None
        and outcome.is_complete
        and all(found == expected for found, expected in counts.values())
    )
    say("every flight is stored once in each place" if is_right else "something is wrong")
    return is_right


def delays(spark: Any, messages: Any, folder: Path) -> ReportTable:
    """Compute the delays of each carrier from the JSON bodies in the lake, with Spark.

    Writes delays.html and delays.png; returns the table.
    """
    rows = [tuple(row) for row in spark.sql(_SQL, messages=messages).collect()]
    rows = [(*row[:3], *(None if cell is None else float(cell) for cell in row[3:])) for row in rows]
    figure = new_figure()
    axes = figure.subplots()
    axes.bar([row[0] for row in rows], [row[3] or 0.0 for row in rows], color="#336699")
    axes.set_ylabel("mean departure delay, minutes")
    axes.set_title("Departures from New York, 2013")
    table = ReportTable("By carrier", _NAMES, rows)
    note = f"{sum(row[1] for row in rows):,} flights; a flight without a delay was cancelled."
    write_page(folder, "delays", "Departure delays by carrier", note, [table], figure)
    return table


@contextmanager
def broker(data_dir: Path) -> Iterator[str]:
    """Run a cluster on a free port; yields host:port. Errors: Unavailable when it does not start."""
    command = [str(Path(sys.executable).parent / "ortoo"), "dev", "--data-dir", str(data_dir)]
    process = subprocess.Popen([*command, "--listen-address", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready on "):
            raise Unavailable(f"the cluster did not become ready; it printed {line!r}")
        yield line.removeprefix("ready on ").split(",")[0].split()[0]
    finally:
        process.terminate()
        process.wait(timeout=30)


if __name__ == "__main__":
    sys.exit(main())
