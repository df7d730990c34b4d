"""Spark on Ortoo beside Spark on Apache Kafka: one session, the same rows, the paths of both in turn.

    python -m bench.spark_kafka --rows 5000000

It needs Maven for Kafka's connector and `make bench-peers` for the client that creates topics. It runs under the newest
Spark that has a connector in Maven Central, in an environment of its own in .tools.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyspark

from bench import report
from bench.peers import jars
from bench.peers.kafka import SHIPPED, kafka
from bench.peers.ours import ortoo
from bench.peers.rounds import machine_busy_s
from bench.peers.servers import Servers
from bench.spark_plain import Plain
from bench.spark_times import SparkTimes
from bench.table import ROOT

METHOD = (
    "one Spark session, local[2], one Kafka broker and three Ortoo processes, all here. All paths run several times "
    "on each system before the first is measured. Then they are measured one after the other. In each round of a path "
    "it runs once on each system, and the systems take turns at being first. The first round of each path is not "
    "counted. A ratio is the median of the rounds' ratios"
)
QUEUES = 4
SOURCE, SMALL, WRITTEN, COPIED = "bench", "small", "written", "copied"
TOPICS = (SOURCE, SMALL, WRITTEN, COPIED)
RETENTION_BYTES = 32 << 30
"""So large that neither system deletes rows while they are still to be read."""
SMALL_ROWS = 1_000
TRIGGER_ROWS = 200_000
LARGE_BATCHES = {"kafka.batch.size": "1048576", "kafka.linger.ms": "20"}
"""Settings for Kafka's source topic. Its default batches of 16 KiB are dearer to read."""
SLIM = "topic,queue_id,offset,stored_at,body"
KAFKA_SLIM = ("topic", "partition", "offset", "timestamp", "value")
HASH = "bit_xor(xxhash64({0})) as hash"
Cost = dict[str, float]


@dataclass(frozen=True, slots=True)
class Ortoo:
    """The paths through Ortoo's connector."""

    spark: Any
    servers: Servers
    name: str = "ortoo"
    body: str = "body"

    def read(self, topic: str = SOURCE, *, stream: bool = False, columns: str = "", **options: object) -> Any:
        """A frame of a topic; without `columns` it has the default columns."""
        options |= {"address": self.servers.address, "subscribe": topic} | ({"columns": columns} if columns else {})
        return (self.spark.readStream if stream else self.spark.read).format("ortoo").options(**options).load()

    def slim(self, **options: Any) -> Any:
        """Place, time and body."""
        return self.read(columns=SLIM, **options)

    def full(self) -> Any:
        """All default columns."""
        return self.read()

    def filtered(self) -> Any:
        """The rows with a tag that one row in a hundred has."""
        return self.slim(tags="rare")

    def keyed(self, **options: Any) -> Any:
        """The columns that a copy has."""
        return self.read(columns="keys,body", **options)

    def columns(self, rows: Any) -> Any:
        """The made rows with the names of Ortoo's columns."""
        return rows.selectExpr("tag", "array(key) keys", "body", "map('region', 'west', 'n', n) properties")

    def sink(self, writer: Any, topic: str) -> Any:
        """A writer into a topic."""
        return writer.format("ortoo").options(address=self.servers.address, topic=topic)


@dataclass(frozen=True, slots=True)
class Kafka:
    """The same paths through Kafka's connector. The tag begins the key, which is the cheapest place to filter."""

    spark: Any
    servers: Servers
    name: str = "kafka"
    body: str = "value"

    def read(self, topic: str = SOURCE, *, stream: bool = False, **options: object) -> Any:
        """A frame of a topic."""
        options |= {"kafka.bootstrap.servers": self.servers.address, "subscribe": topic}
        return (self.spark.readStream if stream else self.spark.read).format("kafka").options(**options).load()

    def slim(self, **options: Any) -> Any:
        """Place, time and value."""
        return self.read(**options).select(*KAFKA_SLIM)

    def full(self) -> Any:
        """All columns, headers included."""
        return self.read(includeHeaders="true")

    def filtered(self) -> Any:
        """The rows whose key begins with a tag that one row in a hundred has."""
        return self.read().where("startswith(key, cast('rare' as binary))").select(*KAFKA_SLIM)

    def keyed(self, **options: Any) -> Any:
        """The columns that a copy has."""
        return self.read(**options).select("key", "value")

    def columns(self, rows: Any) -> Any:
        """The made rows with the names of Kafka's columns."""
        headers = "array(struct('region' key, cast('west' as binary) value), struct('n' key, cast(n as binary) value))"
        return rows.selectExpr("cast(concat(tag, ':', key) as binary) key", "body value", f"{headers} headers")

    def sink(self, writer: Any, topic: str) -> Any:
        """A writer into a topic."""
        options = {"kafka.bootstrap.servers": self.servers.address, "topic": topic, "includeHeaders": "true"}
        return writer.format("kafka").options(**options)


System = Ortoo | Kafka


@dataclass(slots=True)
class Bench:
    """The session, the rows and the folder of a run."""

    spark: Any
    rows: int
    body_bytes: int
    folder: Path
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1 << 30)))

    def made(self, count: int) -> Any:
        """`count` rows, made by Spark itself at a cost that both systems share."""
        body = f"cast(rpad(cast(id as string), {self.body_bytes}, 'x') as binary) body"
        tag = "if(id % 100 = 0, 'rare', 'tag') tag"
        return self.spark.range(0, count, 1, QUEUES).selectExpr(
            tag, "concat('key-', id) key", body, "cast(id as string) n"
        )

    def fill(self, system: System) -> None:
        """Store the rows to read."""
        for topic, count in ((SOURCE, self.rows), (SMALL, SMALL_ROWS)):
            writer = system.sink(system.columns(self.made(count)).write, topic).mode("append")
            (writer.options(**LARGE_BATCHES) if system.name == "kafka" else writer).save()

    def paths(self) -> Mapping[str, tuple[Callable[[System], object], int]]:
        """The paths by their names in results, each with its number of rows."""
        rows = self.rows
        return {
            "read slim": (lambda system: noop(system.slim()), rows),
            "read full": (lambda system: noop(system.full()), rows),
            "read filtered": (lambda system: noop(system.filtered()), rows),
            "stream to Parquet": (self._to_parquet, rows),
            "small stream": (self._small, SMALL_ROWS),
            "topic to topic": (self._copy, rows),
            "write": (self._write, rows),
        }

    def _write(self, system: System) -> None:
        system.sink(system.columns(self.made(self.rows)).write, WRITTEN).mode("append").save()

    def _to_parquet(self, system: System) -> None:
        folder = self._new_folder()
        frame = system.slim(stream=True, startingOffsets="earliest", maxOffsetsPerTrigger=TRIGGER_ROWS)
        self._run(frame.writeStream.format("parquet").option("path", str(folder / "rows")), folder, self.rows)

    def _copy(self, system: System) -> None:
        frame = system.keyed(stream=True, startingOffsets="earliest", maxOffsetsPerTrigger=TRIGGER_ROWS)
        self._run(system.sink(frame.writeStream, COPIED), self._new_folder(), self.rows)

    def plain(self, system: System) -> None:
        """Stream as many rows as `small stream`, from a Python source that does nothing else."""
        self.spark.dataSource.register(Plain)
        frame = self.spark.readStream.format("bench-plain").option("rows", SMALL_ROWS).load()
        self._run(frame.writeStream.format("noop"), self._new_folder(), SMALL_ROWS)

    def jvm(self, system: System) -> None:
        """Stream as many rows as `small stream`, which the JVM makes: no Python process works for this query."""
        frame = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", SMALL_ROWS).load()
        self._run(frame.writeStream.format("noop"), self._new_folder(), SMALL_ROWS)

    def _small(self, system: System) -> None:
        frame = system.keyed(stream=True, startingOffsets="earliest", topic=SMALL)
        self._run(frame.writeStream.format("noop"), self._new_folder(), SMALL_ROWS)

    def _run(self, writer: Any, folder: Path, rows: int) -> None:
        query = writer.option("checkpointLocation", str(folder / "at")).trigger(availableNow=True).start()
        query.awaitTermination()
        read = sum(batch.numInputRows for batch in query.recentProgress)
        assert read == rows, f"the query read {read} rows instead of {rows}"

    def _new_folder(self) -> Path:
        return self.folder / str(next(self._numbers))


def noop(frame: Any) -> None:
    """Read a frame to its end."""
    frame.write.format("noop").mode("overwrite").save()


async def measure(arguments: argparse.Namespace) -> report.Figures:
    """Start both systems and Spark, fill the topics, and time one path after the other."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from ortoo.spark.pipeline.runtime.session import session
    from ortoo.spark.pipeline.runtime.settings import SparkSettings

    conf = (
        f"spark.driver.memory={arguments.memory}",
        "spark.driver.host=127.0.0.1",
        f"spark.jars={','.join(map(str, connector()))}",
    )
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ortoo-bench-spark-")))
        for name in ("ortoo", "kafka", "spark"):
            (folder / name).mkdir()
        ours = await stack.enter_async_context(ortoo(folder / "ortoo", TOPICS, QUEUES, retention_bytes=RETENTION_BYTES))
        theirs = await stack.enter_async_context(
            kafka(folder / "kafka", 1, dict.fromkeys(TOPICS, SHIPPED), QUEUES, retention_bytes=RETENTION_BYTES),
        )
        spark = stack.enter_context(session(SparkSettings("local[2]", conf)))
        bench = Bench(spark, arguments.rows, arguments.body_bytes, folder / "spark")
        systems = (Ortoo(spark, ours), Kafka(spark, theirs))
        for system in systems:
            bench.fill(system)
        check_equal(systems, arguments.rows)
        return {
            "spark": pyspark.__version__,
            "kafka": jars.KAFKA,
            "rows": arguments.rows,
            "body_bytes": arguments.body_bytes,
            "rounds": arguments.rounds,
            "warm_up_rounds": arguments.warm_up_rounds,
            "others_share": 0.0,
        } | _timed(bench, systems, arguments)


def connector() -> list[Path]:
    """The jars of Kafka's connector that Spark does not have already. Errors: NotHere."""
    own = {_artefact(path) for path in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    return [path for path in sorted(jars.bring("spark-kafka").glob("*.jar")) if _artefact(path) not in own]


def _artefact(path: Path) -> str:
    return path.name.rpartition("-")[0]


def check_equal(systems: tuple[System, ...], rows: int) -> None:
    """Both topics have the same rows, and the filter finds the same ones. Errors: AssertionError."""
    found = [
        [tuple(frame.selectExpr("count(*)", HASH.format(system.body)).first()) for frame in frames]
        for system in systems
        for frames in [(system.slim(), system.filtered())]
    ]
    assert found[0] == found[1], found
    assert found[0][0][0] == rows, found


def _timed(bench: Bench, systems: tuple[System, ...], arguments: argparse.Namespace) -> report.Figures:
    only = arguments.only.split(",") if arguments.only else bench.paths()
    paths = {name: path for name, path in bench.paths().items() if name in only}
    for _ in range(arguments.warm_up_rounds):  # compilers of the JVM and of the broker take most in the first minutes
        for run, _ in paths.values():
            for system in systems:
                run(system)
    costs: dict[str, dict[str, list[Cost]]] = {name: {one.name: [] for one in systems} for name in paths}
    least: dict[str, tuple[Callable[[System], object], list[Cost]]] = {
        "plain_source": (bench.plain, []),
        "jvm_source": (bench.jvm, []),
    }
    loads, others, times = [], [], SparkTimes()
    for name, (run, _) in paths.items():
        for turn in range(arguments.rounds + 1):
            loads.append(round(os.getloadavg()[0], 1))
            for system in systems if turn % 2 else systems[::-1]:
                cost = _cost(partial(run, system), system, times)
                others.append(cost.pop("others_share"))
                if turn:
                    costs[name][system.name].append(cost)
            for run_least, found in least.values() if name == "small stream" else ():
                cost = _cost(partial(run_least, systems[0]), systems[0], times)
                cost.pop("others_share")
                found += [cost] * bool(turn)
    return {
        "load_averages": loads,
        "others_share": round(median(others), 3),
        **{name: _medians(found) for name, (_, found) in least.items() if found},
        "paths": {name: _figures(costs[name], count) for name, (_, count) in paths.items()},
    }


def _figures(by_system: dict[str, list[Cost]], rows: int) -> report.Figures:
    medians = {system: _medians(costs) for system, costs in by_system.items()}
    pairs = list(zip(by_system["ortoo"], by_system["kafka"], strict=True))
    ratios = {what: [theirs[what] / ours[what] for ours, theirs in pairs] for what in ("clock_s", "processor_s")}
    return {
        "rows": rows,
        "medians": medians,
        "ratios": {what: round(median(each), 2) for what, each in ratios.items()},
        "ranges": {what: [round(min(each), 2), round(max(each), 2)] for what, each in ratios.items()},
    }


def _medians(costs: list[Cost]) -> Cost:
    return {what: round(median(cost[what] for cost in costs), 3) for what in costs[0]}


def _cost(run: Callable[[], object], system: System, times: SparkTimes) -> Cost:
    def used_s() -> Cost:
        return times.read() | {"servers_s": sum(system.servers.cpu_s().values())}

    before, busy_s, began_s = used_s(), machine_busy_s(), time.perf_counter()
    run()
    clock_s = time.perf_counter() - began_s
    used = {name: value - before[name] for name, value in used_s().items()}
    processor_s = sum(used.values())
    others_s = max(machine_busy_s() - busy_s - processor_s, 0.0)
    others_share = others_s / clock_s / len(os.sched_getaffinity(0))
    return {"clock_s": clock_s, "processor_s": processor_s, **used, "others_share": others_share}


def main() -> None:
    """Run the command line, under the Spark that has a connector."""
    if pyspark.__version__ != jars.SPARK:
        from tests.spark.matrix import environment

        python = environment(jars.SPARK)
        os.execv(python, [python, "-m", "bench.spark_kafka", *sys.argv[1:]])
    report.main(
        "spark_kafka",
        METHOD,
        measure,
        rows=1_000_000,
        body_bytes=200,
        rounds=3,
        warm_up_rounds=4,
        memory="2g",
        only="",
    )


if __name__ == "__main__":
    main()
