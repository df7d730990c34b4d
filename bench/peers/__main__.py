"""RocketMQ, Kafka and Ortoo in one run, by `make bench-peers` or `python -m bench.peers --rounds 4 --seconds 10`.

Writes bench/results/peers (the figures of each round, the table, the picture) and shows both in docs/figures.md.
Exit code 77, with the reason, where Java, Maven or librdkafka is missing.
"""

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from bench.peers import jars
from bench.peers.load import LoadFailed
from bench.peers.picture import draw
from bench.peers.rounds import Plan, compare
from bench.peers.servers import DidNotStart
from bench.peers.systems import groups
from bench.peers.table import PICTURE, RESULT, TABLE, compared, load, table
from bench.report import Figures, setting
from bench.table import write_documents
from ortoo.common.logs import logger as logs

SKIPPED, STOPPED = 77, 143
WARM_UP_MAX = 4
"""The longest warm-up of a load takes this many times as long as the shortest."""
METHOD = (
    "Every server and client runs through all rounds. Each load is applied in windows of {window:g} seconds until "
    "three in a row differ by less than 5 %. That takes from {shortest:g} to {longest:g} seconds. While one system is "
    "measured, the processes of the others are stopped (SIGSTOP), and each round begins with another system."
)


class OtherSetting(Exception):
    """An earlier result was measured in another setting."""


async def measure(plan: Plan, only: set[str], into: Path, kept: Figures) -> None:
    """Measure the systems that are named in `only`. The result is written after each group of systems.

    It also has the figures of the systems `kept`, which an earlier run has measured.

    Errors: NotHere, DidNotStart, LoadFailed.
    """
    before = setting()
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    systems = dict(kept)
    for group in groups():
        if chosen := [one for one in group if one.name in only]:
            with tempfile.TemporaryDirectory(prefix="ortoo-peers-") as folder:
                systems |= await compare(chosen, plan, Path(folder))
            write(result_of(plan, before, systems), into)


def result_of(plan: Plan, before: Figures, systems: Figures) -> Figures:
    """The result of these systems; `before` is the setting before the first one was measured."""
    window, shortest, longest = plan.window_s, plan.warm_up_min_s, plan.warm_up_max_s
    result: Figures = {
        "bench": "peers",
        "method": METHOD.format(window=window, shortest=shortest, longest=longest),
        "setting": before,
        "versions": versions(),
        "rounds": plan.rounds,
        "seconds": plan.seconds,
        "systems": systems,
    }
    return {**result, "ratios": {f"{one.what} ({one.section})": round(one.ratio, 3) for one in compared(result)}}


def systems_of(result: Figures, plan: Plan) -> Figures:
    """The systems of an earlier result. Errors: OtherSetting, if its table could not show both."""
    here = {**setting(), **versions(), "rounds": plan.rounds, "seconds": plan.seconds}
    there = {**result["setting"], **result["versions"], "rounds": result["rounds"], "seconds": result["seconds"]}
    if differing := [name for name in here if name != "load_average_before" and here[name] != there.get(name)]:
        raise OtherSetting(f"the earlier result has other values of {', '.join(differing)}: measure all systems again")
    return dict(result["systems"])


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
    names = [one.name for group in groups() for one in group]
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4, help="how often each system is measured")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each figure; in bulk half of it")
    parser.add_argument("--warm-up-s", type=float, default=30.0, help="the shortest warm-up of each load")
    parser.add_argument("--idle-s", type=float, default=120.0, help="after the start, before idle figures")
    parser.add_argument("--stored", type=int, default=5_000_000, help="the smallest backlog that is read in bulk")
    parser.add_argument("--into", type=Path, default=RESULT.parent, help="where the results go")
    parser.add_argument("--add", action="store_true", help="keep the figures of other systems in the same setting")
    parser.add_argument("--only", default=",".join(names), help=f"comma-separated, of {', '.join(names)}")
    arguments = parser.parse_args()
    plan = Plan(
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        warm_up_min_s=arguments.warm_up_s,
        warm_up_max_s=WARM_UP_MAX * arguments.warm_up_s,
        idle_s=arguments.idle_s,
        stored_messages=arguments.stored,
    )
    if unknown := set(arguments.only.split(",")) - set(names):
        parser.error(f"unknown: {', '.join(sorted(unknown))}. Known: {', '.join(names)}")
    logs.configure(level="error")
    try:
        jars.check_tools()
        for name in jars.SYSTEMS:
            jars.bring(name)
        jars.load_program()
        only, stored = set(arguments.only.split(",")), arguments.into / RESULT.name
        kept = systems_of(load(stored), plan) if arguments.add and stored.exists() else {}
        asyncio.run(measure(plan, only, arguments.into, {name: kept[name] for name in kept.keys() - only}))
    except jars.NotHere as error:
        print(f"NOT MEASURED: {error}")
        return SKIPPED
    except (DidNotStart, LoadFailed, OtherSetting) as error:
        print(f"\nfailed: {error}")
        return 1
    except asyncio.CancelledError:  # SIGTERM; everything that was started has been ended
        print("\nstopped")
        return STOPPED
    return 0


def write(result: Figures, into: Path) -> None:
    """Store the result, its table and its picture, and print the table; docs/figures.md shows the committed ones."""
    into.mkdir(parents=True, exist_ok=True)
    (into / RESULT.name).write_text(json.dumps(result, indent=1) + "\n")
    text = table(result)
    (into / TABLE.name).write_text(text)
    draw(compared(result), into / PICTURE.name)
    print(f"\n{text}")
    if into == RESULT.parent:
        write_documents()


if __name__ == "__main__":
    sys.exit(main())
