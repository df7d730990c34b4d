"""Departure delays by wind: a live report over two topics, compared with the same report as a batch.

Flights and the weather at their airports are sent hour by hour while the report runs, like live data.
"""

import csv
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from pyspark.sql import functions as sf

from ortoo.cli.demo import flights as departures
from ortoo.client import Message, blocking
from ortoo.spark.format import bodies
from ortoo.spark.pipeline.runtime.progress import Say
from ortoo.spark.pipeline.runtime.report_page import ReportTable

TOPICS = ("live-weather", "live-flights")
"""Sent in this order, so that the weather of an hour precedes its flights."""
END = "2013-01-10"
"""Data before this time is sent."""
CLOSED = "2013-01-09 00:00:00"
"""Windows that end before this are complete when all data is sent."""
_FIELDS = ("origin", "time_hour", "temp", "wind_speed", "precip", "visib")
_NAMES = ("wind, mph", "windows", "flights", "mean delay, min")


def delays_by_wind(flights: Any, weather: Any) -> Any:
    """The delays by wind speed, from two frames of messages, which may be streams or batches."""
    left = flights.select(bodies.json("origin string, time_hour timestamp, dep_delay double").alias("f"))
    right = weather.select(bodies.json("origin string, time_hour timestamp, wind_speed double").alias("w"))
    left = left.selectExpr("f.origin", "f.time_hour as hour", "f.dep_delay as delay")
    right = right.selectExpr("w.origin as airport", "w.time_hour as at", "w.wind_speed as wind")
    joined = left.withWatermark("hour", "1 hour").join(
        right.withWatermark("at", "1 hour"), (sf.col("origin") == sf.col("airport")) & (sf.col("hour") == sf.col("at"))
    )
    return joined.groupBy(sf.window("hour", "6 hours"), (sf.floor(sf.col("wind") / 10) * 10).alias("wind")).agg(
        sf.count("*").alias("flights"), sf.avg("delay").alias("delay")
    )


def live_report(spark: Any, address: str, checkpoint: Path, say: Say) -> tuple[ReportTable, bool]:
    """Run the report as a stream while both topics are filled.

    Returns its table, and whether a batch query returns the same rows.
    """

    def topic(source: Any, name: str) -> Any:
        given = {"address": address, "subscribe": name, "startingOffsets": "earliest", "columns": "body"}
        return source.format("ortoo").options(**given).load()

    with blocking.connect(address) as mq:
        for name in TOPICS:
            mq.admin.create_topic(name, queue_count=2)
        live = delays_by_wind(*(topic(spark.readStream, name) for name in reversed(TOPICS)))
        writer = live.writeStream.format("memory").queryName("delays_by_wind").outputMode("append")
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            query.processAllAvailable()  # the query runs before there is data
            sent = _send(mq)
            say(f"sent {sent:,} flights and hours of weather while the report over both ran")
            query.processAllAvailable()
        finally:
            query.stop()
    is_closed = f"window.end <= '{CLOSED}'"
    found = spark.table("delays_by_wind").where(is_closed)
    batch = delays_by_wind(*(topic(spark.read, name) for name in reversed(TOPICS))).where(is_closed)
    is_same = sorted(map(str, found.collect())) == sorted(map(str, batch.collect()))
    rows = found.groupBy("wind").agg(
        sf.count("*").alias("windows"),
        sf.sum("flights").alias("flights"),
        (sf.sum(sf.col("delay") * sf.col("flights")) / sf.sum("flights")).alias("delay"),
    )
    return ReportTable("Delays by wind, live", _NAMES, [tuple(row) for row in rows.orderBy("wind").collect()]), is_same


def _send(mq: blocking.BlockingClient) -> int:
    """Send both topics hour by hour, so that no message is later than the report's watermark of one hour."""
    file = departures.data_file()
    both = {TOPICS[0]: _weather(file.parent / "weather.csv"), TOPICS[1]: departures.messages(file)}
    dated = ((_hour(message), topic, message) for topic, messages in both.items() for message in messages)
    ordered = sorted((row for row in dated if row[0] < END), key=lambda row: (row[0], TOPICS.index(row[1])))
    with mq.producer(TOPICS[0]) as weather, mq.producer(TOPICS[1]) as flights:
        producers = {TOPICS[0]: weather, TOPICS[1]: flights}
        for (_, topic), rows in groupby(ordered, key=lambda row: row[:2]):
            producers[topic].send_many([message for _, _, message in rows])
    return len(ordered)


def _hour(message: Message) -> str:
    return str(json.loads(message.body)["time_hour"])


def _weather(file: Path) -> Iterator[Message]:
    """Every hour of weather at each airport as JSON."""
    with file.open(newline="") as rows:
        for row in csv.DictReader(rows):
            record = {name: row[name] if name in _FIELDS[:2] else _number(row[name]) for name in _FIELDS}
            yield Message(json.dumps(record).encode(), tag=row["origin"])


def _number(text: str) -> float | None:
    return None if text in ("", "NA") else float(text)
