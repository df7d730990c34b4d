"""All benchmarks one after another; writes bench/results/NAME.json, their table, and the table in docs/figures.md.

`python -m bench.suite` runs all and `python -m bench.suite produce latency` runs some. `--into FOLDER` keeps the
committed results as they are, for `python -m bench.guard FOLDER`.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from bench import capacity, spark_kafka_table
from bench.table import RESULTS, write_documents

BENCHES = {
    "produce": ["--seconds", "6"],
    "end_to_end": ["--seconds", "8"],
    "latency": ["--seconds", "8"],
    "unary": ["--seconds", "5"],
    "catch_up": [],
    "scale_queues": ["--seconds", "3"],
    "scale_log": ["--seconds", "3"],
    "cold_start": ["--rounds", "5"],
    "memory": ["--seconds", "15"],
    "filters": [],
}
"""Benchmarks in order of execution, with flags that keep the total within ten minutes on two cores."""
STORE_BENCHES: dict[str, list[str]] = {"flush": [], "readers": [], "key_query": [], "store_start": []}
"""Benchmarks of the storage engine alone, with stores of up to 10 GB. They run only when named: `make bench-store`."""
SPARK_BENCHES: dict[str, list[str]] = {"spark": [], "spark_kafka": []}
"""Benchmarks that need pyspark and Java. They run only when named: `make bench-spark`, `make bench-spark-kafka`."""
SURROUNDING_BENCHES: dict[str, list[str]] = {"surroundings": []}
"""A quarter of an hour. It runs only when named: `make bench-surroundings`."""
NAMED_BENCHES = STORE_BENCHES | SPARK_BENCHES | SURROUNDING_BENCHES
FOLDERS = (
    dict.fromkeys(STORE_BENCHES, "store")
    | dict.fromkeys(SPARK_BENCHES, "spark")
    | dict.fromkeys(SURROUNDING_BENCHES, "surroundings")
)
"""The result folder of each benchmark that runs only when named."""


def run(name: str, into: Path) -> bool:
    """Run one benchmark in a separate process and store its result; whether it succeeded."""
    began = time.perf_counter()
    print(f"{name} ...", end=" ", flush=True)
    command = [sys.executable, "-m", f"bench.{name}", "--json", *(BENCHES | NAMED_BENCHES)[name]]
    into = into / FOLDERS.get(name, "")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(f"{time.perf_counter() - began:.0f} s" if done.returncode == 0 else "failed", flush=True)
    if done.returncode != 0:
        return False
    into.mkdir(parents=True, exist_ok=True)
    (into / f"{name}.json").write_text(json.dumps(json.loads(done.stdout), indent=2) + "\n")
    return True


def main() -> int:
    """Run the command line; 1 if a benchmark failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.suite", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}; none = these")
    parser.add_argument("--into", type=Path, default=RESULTS, help="where the results go")
    arguments = parser.parse_args()
    known = BENCHES | NAMED_BENCHES
    if unknown := set(arguments.names) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}. Known: {', '.join(known)}")
    worked = [run(name, arguments.into) for name in arguments.names or BENCHES]
    if arguments.into == RESULTS:
        write_documents()
        spark_kafka_table.PAGE.write_text(spark_kafka_table.page())
        capacity.PAGE.write_text(capacity.page(capacity.PAGE.read_text()))
    return 0 if all(worked) else 1


if __name__ == "__main__":
    sys.exit(main())
