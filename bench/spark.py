"""The rate at which Spark reads and writes topics, against rows that its workers already hold."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench import processes, report
from ortoo.client import Message, connect
from ortoo.client.core.wire import wire_queue
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_calls import envelope_of
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.records.batch import encode, split_messages
from ortoo.v1 import producer_pb2

METHOD = (
    "three processes (default, durable) and Spark local[2] here. Each path is run in turn, the median of the runs "
    "counts. Baseline: the same rows as Arrow batches from inside the worker. Sink: Spark's noop"
)
SLIM = "topic,queue_id,offset,stored_at,body"
TOPIC = "bench"
IN_FLIGHT = 8
RATIOS = (
    ("read_slim", "generator_slim"),
    ("read_full", "generator_full"),
    ("read_slim", "tuples_slim"),
    ("read_full", "tuples_full"),
    ("read_body", "read_full"),
    ("read_tagged", "read_slim"),
)
"""Each path and the path to compare it with."""


async def measure(arguments: argparse.Namespace) -> report.Figures:
    """Fill a topic, start Spark, and time each path in turn."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with tempfile.TemporaryDirectory(prefix="ortoo-bench-spark-") as folder:
        async with processes.cluster() as cluster:
            await _fill(cluster.address, arguments.rows, arguments.body_bytes)
            from ortoo.spark.pipeline.runtime.session import session
            from ortoo.spark.pipeline.runtime.settings import SparkSettings

            conf = (f"spark.driver.memory={arguments.memory}", "spark.driver.host=127.0.0.1")
            with session(SparkSettings("local[2]", conf)) as spark:
                return _timed(spark, cluster, arguments, Path(folder))


async def _fill(address: str, rows: int, body_bytes: int) -> None:
    """Store about `rows` messages: the same 20,000 repeated, batch by batch, one in a hundred with a tag."""
    body = os.urandom(body_bytes)
    messages = [
        Message(
            body,
            "rare" if n % 100 == 0 else "tag",
            (f"key-{n}",),
            properties={"region": "west", "n": str(n)},
        )
        for n in range(min(rows, 20_000))
    ]
    made = [encode(part, now_ms=0) for part in split_messages(messages)]
    async with connect(address) as mq:
        for topic in (TOPIC, "target"):
            await mq.admin.create_topic(topic, queue_count=4)
        queues = [wire_queue(each.queue) for each in (await mq.admin.describe_topic(TOPIC)).queues]
        call = bulk_calls.produce(mq._connection.channel())
        stored = number = waiting = 0
        while stored < rows or waiting:
            if stored < rows and waiting < IN_FLIGHT:
                sealed = made[number % len(made)]
                request = producer_pb2.ProduceRequest(
                    request_id=number, queue=queues[number % len(queues)], batch=envelope_of(sealed)
                )
                await call.write(BulkMessage(request, (sealed.records,)))
                stored, number, waiting = stored + sealed.count, number + 1, waiting + 1
            else:
                answer = await call.read()
                assert not answer.HasField("failure"), answer
                waiting -= 1


def _timed(spark: Any, cluster: processes.Cluster, arguments: argparse.Namespace, folder: Path) -> report.Figures:
    address = cluster.address
    from bench.spark_sources import Generator, RowByRow

    spark.dataSource.register(Generator)
    spark.dataSource.register(RowByRow)
    rows, tuple_rows = arguments.rows, max(arguments.rows // 8, 1)

    def noop(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def ours(names: str, kind: str = "ortoo", **options: object) -> Any:
        given = {"address": address, "subscribe": TOPIC, "columns": names} | options
        return spark.read.format(kind).options(**{name: value for name, value in given.items() if value}).load()

    def generated(names: str) -> Any:
        source = spark.read.format("bench-generator").options(rows=rows, tasks=4, bodyBytes=arguments.body_bytes)
        return (source.option("columns", names) if names else source).load()

    def some(names: str) -> Any:
        return ours(names, "bench-tuples", endingOffsets=_first(address, tuple_rows))

    def written() -> None:
        frame = ours("tag,keys,body,born_at")
        frame.write.format("ortoo").options(address=address, topic="target").mode("append").save()

    def streamed() -> None:
        _stream(spark, address, folder / str(time.monotonic_ns()))

    paths: dict[str, tuple[Callable[[], Any], int]] = {
        "generator_slim": (lambda: noop(generated(SLIM)), rows),
        "read_slim": (lambda: noop(ours(SLIM)), rows),
        "generator_full": (lambda: noop(generated("")), rows),
        "read_full": (lambda: noop(ours("")), rows),
        "read_body": (lambda: noop(ours("body")), rows),
        "read_tagged": (lambda: noop(ours(SLIM, tags="rare")), rows),
        "tuples_slim": (lambda: noop(some(SLIM)), tuple_rows),
        "tuples_full": (lambda: noop(some("")), tuple_rows),
        "write": (written, rows),
        "stream_slim": (streamed, rows),
    }
    if arguments.only:
        paths = {name: paths[name] for name in arguments.only.split(",")}
    seconds: dict[str, list[float]] = {name: [] for name in paths}
    cpu_us: dict[str, list[dict[str, float]]] = {name: [] for name in paths}
    for turn in range(arguments.runs + 1):
        for name, (run, count) in paths.items():
            before, began_s = _cpu_s(cluster), time.perf_counter()
            run()
            if turn:  # the first turn warms workers and the JVM up
                seconds[name].append(time.perf_counter() - began_s)
                cpu_us[name].append(processes.cpu_us_per_message(before, _cpu_s(cluster), count))
    speed = {name: round(count / median(seconds[name])) for name, (_, count) in paths.items()}
    return {
        "rows": rows,
        "body_bytes": arguments.body_bytes,
        "rows_per_second": speed,
        "cpu_us_per_row": {
            name: {process: median(turn[process] for turn in turns) for process in turns[0]}
            for name, turns in cpu_us.items()
        },
        "ratios": {
            f"{one} to {other}": report.ratio(speed[one], speed[other])
            for one, other in RATIOS
            if one in speed and other in speed
        },
        "processor_ratios": {
            f"{one} to {other}": report.ratio(_sum_of_medians(cpu_us[other]), _sum_of_medians(cpu_us[one]))
            for one, other in RATIOS
            if one in speed and other in speed
        },
    }


def _sum_of_medians(turns: list[dict[str, float]]) -> float:
    """Processor microseconds a row in all processes: the figure that noise on the machine changes least."""
    return sum(median(turn[process] for turn in turns) for process in turns[0])


def _cpu_s(cluster: processes.Cluster) -> dict[str, float]:
    """Processor seconds so far: of the broker's processes, of Spark's JVM, and of its Python workers together."""
    (jvm,) = (each for each in processes.descendants(os.getpid()) if processes.name_of(each) == "java")
    return {
        "snode": processes.cpu_s(cluster.snode.process_id),
        "enode": processes.cpu_s(cluster.enode.process_id),
        "jvm": processes.cpu_s(jvm),
        "workers": sum(processes.cpu_s(each, with_children=True) for each in processes.descendants(jvm)),
    }


def _first(address: str, rows: int) -> str:
    """Ends of the queues that make a read return about `rows` rows, as an option."""
    import json

    from ortoo.spark.core.cluster_options import ClusterOptions
    from ortoo.spark.core.link import link_to
    from ortoo.spark.reading.batch_limits import limit_offsets

    link = link_to(ClusterOptions((address,)))
    described = link.run(link.admin.describe_topic(TOPIC)).queues
    ends = limit_offsets({i.queue: 0 for i in described}, {i.queue: i.end_offset for i in described}, rows)
    tree: dict[str, dict[str, dict[str, int]]] = {TOPIC: {}}
    for queue, end in ends.items():
        tree[TOPIC].setdefault(queue.enode, {})[str(queue.queue_id)] = end
    return json.dumps(tree)


def _stream(spark: Any, address: str, checkpoint: Path) -> None:
    source = spark.readStream.format("ortoo").options(
        address=address, subscribe=TOPIC, columns=SLIM, startingOffsets="earliest", maxOffsetsPerTrigger=200_000
    )
    query = source.load().writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    report.main("spark", METHOD, measure, rows=1_000_000, body_bytes=200, runs=3, memory="1g", only="")
