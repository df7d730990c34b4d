"""Detect regressions: compare ratios of new results with the committed ones, never times.

    python -m bench.suite --into build/bench
    python -m bench.guard build/bench       # exit code 1, and a line for each ratio that fell

Every ratio compares with the baseline of the same run, so results of two machines can be compared. Larger is better:
a rate is divided by the baseline's, a time divides the baseline's.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.report import Figures
from bench.table import RESULTS, load

FALL_MAX = 0.25
"""The largest fraction by which a ratio may fall; noise on a shared machine causes smaller falls."""


@dataclass(frozen=True, slots=True)
class Regression:
    """A ratio that fell or is missing."""

    bench: str
    ratio: str
    before: float
    now: float | None

    def __str__(self) -> str:
        if self.now is None:
            return f"{self.bench}: {self.ratio} was {self.before:.3f}, is missing from the new results"
        return f"{self.bench}: {self.ratio}: was {self.before:.3f}, is {self.now:.3f}"


def regressions(before: dict[str, Figures], now: dict[str, Figures], fall_max: float = FALL_MAX) -> list[Regression]:
    """The ratios that fell by more than `fall_max`; only benchmarks that are in both are compared."""
    fallen = []
    for bench in sorted(before.keys() & now.keys()):
        new = now[bench]["ratios"]
        for name, value in before[bench]["ratios"].items():
            is_fine = new.get(name, float("nan")) >= value * (1 - fall_max)  # nothing compares with "not a number"
            if not is_fine:
                fallen.append(Regression(bench, name, value, new.get(name)))
    return fallen


def main() -> int:
    """Run the command line; 1 if a ratio fell, 2 if there is nothing to compare."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the new results are")
    parser.add_argument("--against", type=Path, default=RESULTS, help="the results to compare with")
    parser.add_argument("--fall-max", type=float, default=FALL_MAX, help="share by which a ratio may fall")
    arguments = parser.parse_args()
    before, now = load(arguments.against), load(arguments.folder)
    if not before.keys() & now.keys():
        print(f"nothing to compare: {arguments.against} and {arguments.folder} share no result")
        return 2
    fallen = regressions(before, now, arguments.fall_max)
    for one in fallen:
        print(one)
    if not fallen:
        print(f"no ratio of {len(before.keys() & now.keys())} benchmarks fell by more than {arguments.fall_max:.0%}")
    return 1 if fallen else 0


if __name__ == "__main__":
    sys.exit(main())
