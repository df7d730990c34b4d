"""The command line: one seed with its trace and log, many seeds on all cores, and the smallest run that still fails."""

import argparse
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ortoo.common.errors import Conflict
from ortoo.verification.simulation.run.outcome import RunOptions
from ortoo.verification.simulation.run.seeds import SeedBatch, run_seeds
from ortoo.verification.simulation.run.shrink import shrink
from ortoo.verification.simulation.run.simulation import run


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns 1 if there is a finding."""
    parser = argparse.ArgumentParser(prog="python -m ortoo.verification.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which run")
    parser.add_argument("--seeds", type=int, default=0, help="number of seeds to run, beginning with --seed")
    parser.add_argument("--random", type=int, default=0, help="with --workers: number of further, random seeds")
    parser.add_argument("--workers", type=int, default=0, help="number of processes")
    parser.add_argument(
        "--results", type=Path, help="with --workers: continue with the seeds without a result in this file"
    )
    parser.add_argument(
        "--batch",
        type=_batch,
        action="append",
        default=[],
        metavar="REPLICAS:SEEDS:RANDOM[:BYTES]",
        help="with --workers: these numbers in place of --replicas, --seeds, --random and --retention-bytes",
    )
    parser.add_argument("--first", action="store_true", help="stop at the first seed that fails")
    parser.add_argument("--shrink", action="store_true", help="leave out the faults that are not needed")
    parser.add_argument("--seconds", type=float, default=30.0, help="virtual seconds of trouble")
    parser.add_argument("--trace", type=Path, help="write every delivery to this file")
    parser.add_argument("--log", type=Path, help="write the logs of all processes to this file")
    parser.add_argument("--without", default="", help="numbers of faults to leave out, 3,7")
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--scenario", action="append", default=[])
    parser.add_argument("--fault", action="append", default=[], help="a kind of fault; several may be given")
    parser.add_argument("--plant", default="", help="a planted bug, module:function")
    parser.add_argument("--replicas", type=int, default=1, help="replicas of the enode: 1, 3 or 5")
    parser.add_argument(
        "--retention-bytes", type=int, default=0, help="size of the log above which acknowledged messages are deleted"
    )
    given = parser.parse_args(arguments)
    choices = RunOptions(
        given.seed,
        given.seconds,
        tuple(int(number) for number in given.without.split(",") if number),
        not given.no_faults,
        tuple(given.scenario),
        tuple(given.fault),
        given.plant,
        given.replicas,
        given.retention_bytes,
    )
    # gRPC never starts a call made in the last turn of a run, and Python warns when it is collected.
    warnings.filterwarnings("ignore", "coroutine 'UnaryUnaryCall._invoke' was never awaited")
    if given.results and (given.random or given.batch or not given.workers):
        parser.error("--results needs --workers, and is not for --random or --batch")
    if given.shrink:
        return _shrink(choices)
    if given.workers:
        try:
            batches = [
                SeedBatch(replace(choices, replicas=replicas, retention_bytes=retention_bytes), count, drawn)
                for replicas, count, drawn, retention_bytes in given.batch
            ]
            return run_seeds(
                batches or [SeedBatch(choices, given.seeds, given.random)],
                workers=given.workers,
                results_file=given.results,
            )
        except Conflict as error:
            parser.error(str(error))
    failed = 0
    for seed in range(given.seed, given.seed + (given.seeds or 1)):
        with ExitStack() as files:
            outcome = run(
                replace(choices, seed=seed),
                trace_file=files.enter_context(given.trace.open("w")) if given.trace else None,
                log_file=files.enter_context(given.log.open("w")) if given.log else None,
            )
        _say(outcome.report())
        failed += bool(outcome.violations)
        if failed and given.first:
            break
    return 1 if failed else 0


def _batch(text: str) -> tuple[int, int, int, int]:
    replicas, seeds, drawn, retention_bytes = map(int, (text if text.count(":") == 3 else f"{text}:0").split(":"))
    return replicas, seeds, drawn, retention_bytes


def _shrink(choices: RunOptions) -> int:
    smallest = shrink(choices, run, _say)
    if smallest is None:
        _say(f"seed {choices.seed} does not fail")
        return 0
    _say(smallest.report())
    for fault in smallest.faults:
        _say(f"  needed: {fault}")
    return 1


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # a command speaks on the terminal
