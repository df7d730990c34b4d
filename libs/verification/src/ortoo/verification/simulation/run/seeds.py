"""Many seeds, distributed over processes. Each process runs a few and ends, which frees the memory of its runs.

They are forked from a process that has imported everything.
"""

import math
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ortoo.common.process.randomness import Randomness
from ortoo.verification.forks.fork_server import ForkServer
from ortoo.verification.simulation.run.outcome import RunOptions
from ortoo.verification.simulation.run.results import SeedResults, stretches

SEEDS_A_PROCESS = 20
"""The maximum number of seeds of a process."""
RANDOM_BELOW = 1 << 31
"""Random seeds are below this number."""


def run_seeds(
    options: RunOptions, seeds: int, *, workers: int, random_seeds: int = 0, results_file: Path | None = None
) -> int:
    """Run `seeds` seeds from that of `options`, then `random_seeds` from a random one; go on after a failure.

    Failures are printed at once. With `results_file`, seeds with a result in this file are not run again, and the
    results of all these seeds end in a table. Returns 1 if there were failures. Errors: Conflict if the file has
    results of other options.
    """
    results = SeedResults(options, results_file)
    fixed = range(options.seed, options.seed + seeds)
    drawn = Randomness().below(RANDOM_BELOW)
    if results_file is None:
        parts = [*shares(options.seed, seeds, workers), *shares(drawn, random_seeds, workers)]
    else:
        parts = list(stretches(results.remaining(options.seed, seeds), max(1, SEEDS_A_PROCESS // workers)))
    ended = _run_parts(options, parts, workers, results)
    ran = {*fixed, *range(drawn, drawn + random_seeds)}
    failed = len(results.failures(ran)) + ended
    drawn_seeds = f", of which {random_seeds} from seed {drawn} on" if random_seeds else ""
    _say(f"{len(ran & results.found.keys())} seeds{drawn_seeds}, {failed} failed")
    if results_file is not None:
        _say(results.table(fixed))
    return 1 if failed else 0


def _run_parts(options: RunOptions, parts: list[tuple[int, int]], workers: int, results: SeedResults) -> int:
    """Run the seeds of each part in a process of its own; the number of processes that ended before their last seed."""
    ended = 0
    with (
        closing(ForkServer(["ortoo.verification.simulation.run.command"])) as server,
        ThreadPoolExecutor(workers) as pool,
    ):
        waiting = [pool.submit(_worker, server, options, first, count) for first, count in parts]
        for one in as_completed(waiting):
            code, text = one.result()
            for report in results.add(text):
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
