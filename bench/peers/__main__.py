"""RocketMQ, Kafka and Ortoo in one run, by `make bench-peers` or `python -m bench.peers --rounds 3 --seconds 10`.

Writes bench/results/peers (the figures of each round, their medians, the table, the picture) and shows both in
docs/figures.md. Exit code 77, with the reason, where Java, Maven or librdkafka is missing.
"""

import argparse
import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from bench.peers import jars
from bench.peers.load import LoadFailed
from bench.peers.picture import draw
from bench.peers.rounds import SYSTEMS, System
from bench.peers.servers import DidNotStart
from bench.peers.table import PICTURE, RESULT, TABLE, medians, rows, table
from bench.report import Figures, setting
from bench.table import write_documents
from ortoo.common.logs import logger as logs

SKIPPED, STOPPED = 77, 143
STARTS_MAX = 3
METHOD = (
    "each round starts each system again with its defaults (RocketMQ's broker with SYNC_FLUSH). The same client "
    "program loads it. It is stopped before the next one starts. Medians over the rounds"
)


async def measure(rounds: int, seconds: float, systems: list[System]) -> Figures:
    """Run all rounds; returns the result to write. Errors: NotHere, DidNotStart, LoadFailed."""
    before = setting()
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    rounds_of: dict[str, list[Figures]] = {one.name: [] for one in systems}
    for number in range(1, rounds + 1):
        for system in systems:
            began = time.perf_counter()
            print(f"round {number} of {rounds}: {system.name} ...", end=" ", flush=True)
            rounds_of[system.name].append(await _round(system, seconds))
            print(f"{time.perf_counter() - began:.0f} s", flush=True)
    result: Figures = {
        "bench": "peers",
        "method": METHOD,
        "setting": before,
        "versions": versions(),
        "rounds": rounds,
        "seconds": seconds,
        "systems": {name: medians(some) for name, some in rounds_of.items()},
        "rounds_of": rounds_of,
    }
    return {**result, "ratios": {f"{row.what} ({row.section})": round(row.ratio, 3) for row in rows(result)}}


async def _round(system: System, seconds: float) -> Figures:
    """One round. Started again once, because RocketMQ's proxy may exit while its broker is not registered.

    Errors: as `measure`.
    """
    for _ in range(STARTS_MAX - 1):
        with contextlib.suppress(DidNotStart):
            return await system.round(seconds)
        print("did not start, once more ...", end=" ", flush=True)
    return await system.round(seconds)


def versions() -> dict[str, str]:
    """Versions of everything but Ortoo."""
    said = subprocess.run(("java", "-version"), capture_output=True, text=True, check=True).stderr
    found = re.search(r'version "([^"]+)"', said)
    return {
        "rocketmq": jars.ROCKETMQ,
        "kafka": jars.KAFKA,
        "client": jars.CLIENT,
        "java": found[1] if found else "unknown",
        "confluent-kafka": version("confluent-kafka"),
    }


def main() -> int:
    """Run the command line; 1 if a system could not be measured, 77 if this machine lacks a requirement."""
    names = [one.name for one in SYSTEMS]
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often each system is measured")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each figure; in bulk half of it")
    parser.add_argument("--into", type=Path, default=RESULT.parent, help="where the results go")
    parser.add_argument("--only", default=",".join(names), help=f"comma-separated, of {', '.join(names)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.only.split(",")) - set(names):
        parser.error(f"unknown: {', '.join(sorted(unknown))}. Known: {', '.join(names)}")
    logs.configure(level="error")
    try:
        jars.check_tools()
        for name in jars.ARTEFACTS:
            jars.bring(name)
        jars.load_program()
        chosen = [one for one in SYSTEMS if one.name in arguments.only.split(",")]
        result = asyncio.run(measure(arguments.rounds, arguments.seconds, chosen))
    except jars.NotHere as error:
        print(f"NOT MEASURED: {error}")
        return SKIPPED
    except (DidNotStart, LoadFailed) as error:
        print(f"\nfailed: {error}")
        return 1
    except asyncio.CancelledError:  # SIGTERM; everything that was started has been ended
        print("\nstopped")
        return STOPPED
    write(result, arguments.into)
    return 0


def write(result: Figures, into: Path) -> None:
    """Store the result, its table and its picture, and print the table; docs/figures.md shows the committed ones."""
    into.mkdir(parents=True, exist_ok=True)
    (into / RESULT.name).write_text(json.dumps(result, indent=1) + "\n")
    text = table(result)
    (into / TABLE.name).write_text(text)
    draw(rows(result), into / PICTURE.name)
    print(f"\n{text}")
    if into == RESULT.parent:
        write_documents()


if __name__ == "__main__":
    sys.exit(main())
