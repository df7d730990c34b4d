"""Many seeds, distributed over processes. Each process runs a few and ends, which frees the memory of its runs.

They are forked from a process that has imported everything.
"""

import math
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import replace

from ortoo.common.process.randomness import Randomness
from ortoo.verification.forks.fork_server import ForkServer
from ortoo.verification.simulation.run.outcome import RunOptions

SEEDS_A_PROCESS = 20
"""The maximum number of seeds of a process."""
RANDOM_BELOW = 1 << 31
"""Random seeds are below this number."""


def run_seeds(options: RunOptions, seeds: int, *, workers: int, random_seeds: int = 0) -> int:
    """Run `seeds` seeds from that of `options`, then `random_seeds` from a random one.

    Failures are printed at once. Returns 1 if there were any.
    """
    failed, done = 0, 0
    drawn = Randomness().below(RANDOM_BELOW)
    with (
        closing(ForkServer(["ortoo.verification.simulation.run.command"])) as server,
        ThreadPoolExecutor(workers) as pool,
    ):
        parts = [*shares(options.seed, seeds, workers), *shares(drawn, random_seeds, workers)]
        waiting = [pool.submit(_worker, server, options, first, count) for first, count in parts]
        for one in as_completed(waiting):
            code, text = one.result()
            failures = [part for part in _outcomes(text) if not part.startswith("seed ")]
            for failure in failures:
                _say(failure)
            failed += len(failures)
            done += len(_outcomes(text))
            if code not in (0, 1):
                failed += 1
                _say(f"a worker ended with {code}:\n{text}")
    drawn_seeds = f", of which {random_seeds} from seed {drawn} on" if random_seeds else ""
    _say(f"{done} seeds{drawn_seeds}, {failed} failed")
    return 1 if failed else 0


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


def _outcomes(text: str) -> list[str]:
    """The outcomes in a worker's output, each with its findings; without the interpreter's own output."""
    return re.findall(r"^(?:FAILED )?seed .*(?:\n .*)*", text, re.MULTILINE)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # a command speaks on the terminal
