"""Many seeds, distributed over processes. Each process runs a few and ends, which frees the memory of its runs.

They are forked from a process that has imported everything.
"""

import math
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from ortoo.common.process.randomness import Randomness
from ortoo.verification.forks.fork_server import ForkServer
from ortoo.verification.simulation.run.outcome import RunOptions
from ortoo.verification.simulation.run.results import SeedResults, stretches

SEEDS_A_PROCESS = 20
"""The maximum number of seeds of a process."""
SEEDS_KEPT_AT_ONCE = 5
"""The maximum number of seeds of a process if results are kept: a stop loses the seeds of running processes."""
RANDOM_BELOW = 1 << 31
"""Random seeds are below this number."""


@dataclass(frozen=True, slots=True)
class SeedBatch:
    """Runs with the same options: `count` seeds from that of `options` on, then `random` seeds from a random one on."""

    options: RunOptions
    count: int
    random: int = 0


def run_seeds(batches: Sequence[SeedBatch], *, workers: int, results_file: Path | None = None) -> int:
    """Run all seeds, also after a failure. The batch with the most replicas is first, because its runs are the longest.

    Failures are printed at once. With `results_file`, which needs a single batch, seeds with a result in this file are
    not run again. The results of all seeds of the batch are then printed as a table. Returns 1 if there were failures.
    Errors: Conflict if the file has results of other options.
    """
    drawn = Randomness().below(RANDOM_BELOW)
    kept = [SeedResults(batch.options, results_file) for batch in batches]
    parts: list[_Part] = []
    for batch, results in sorted(zip(batches, kept, strict=True), key=lambda one: -one[0].options.replicas):
        first = batch.options.seed
        if results_file is None:
            ranges = [*shares(first, batch.count, workers), *shares(drawn, batch.random, workers)]
        else:
            ranges = [*stretches(results.remaining(first, batch.count), SEEDS_KEPT_AT_ONCE)]
        parts += [(results, *one) for one in ranges]
    failed = _run_parts(parts, workers)
    for batch, results in zip(batches, kept, strict=True):
        fixed = range(batch.options.seed, batch.options.seed + batch.count)
        ran = {*fixed, *range(drawn, drawn + batch.random)} & results.found.keys()
        failures = len(results.failures(ran))
        failed += failures
        replicas = f" with {batch.options.replicas} replicas" if batch.options.replicas > 1 else ""
        replicas += " with retention" if batch.options.retention_bytes else ""
        drawn_seeds = f", of which {batch.random} from seed {drawn} on" if batch.random else ""
        _say(f"{len(ran)} seeds{replicas}{drawn_seeds}, {failures} failed")
        if results_file is not None:
            _say(results.table(fixed))
    return 1 if failed else 0


_Part = tuple[SeedResults, int, int]
"""The results to add to, the first seed and the number of seeds of one process."""


def _run_parts(parts: list[_Part], workers: int) -> int:
    """Run the seeds of each part in a process of its own; the number of processes that ended before their last seed."""
    ended = 0
    with (
        closing(ForkServer(["ortoo.verification.simulation.run.command"])) as server,
        ThreadPoolExecutor(workers) as pool,
    ):
        waiting = {
            pool.submit(_worker, server, results.options, first, count): results for results, first, count in parts
        }
        for one in as_completed(waiting):
            code, text = one.result()
            for report in waiting[one].add(text):
                if report.startswith("FAILED"):
                    _say(report)
            if code not in (0, 1):
                ended += 1
                _say(f"a worker ended with {code}:\n{text}")
    return ended


def shares(first: int, seeds: int, workers: int) -> Iterator[tuple[int, int]]:
    """(first seed, number of seeds) of each process, balanced over the workers."""
    rounds = math.ceil(seeds / (SEEDS_A_PROCESS * workers))
    count = math.ceil(seeds / (rounds * workers)) if rounds else SEEDS_A_PROCESS
    for start in range(first, first + seeds, count):
        yield start, min(count, first + seeds - start)


def _worker(server: ForkServer, choices: RunOptions, first: int, count: int) -> tuple[int, str]:
    words = [sys.executable, "-m", "ortoo.verification.simulation", *replace(choices, seed=first).arguments()]
    words += ["--seeds", str(count)]
    nothing = os.open(os.devnull, os.O_RDONLY)
    read, write = os.pipe()
    try:
        process_id = server.fork(words, os.environ, [nothing, write, write])
    finally:
        os.close(nothing)
        os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    return os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1]), text


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # a command speaks on the terminal
