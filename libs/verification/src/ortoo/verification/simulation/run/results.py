"""The results of many seeds in a file, so that a stopped search continues, and the table of all of them."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.common.errors import Conflict
from ortoo.verification.simulation.run.outcome import RunOptions

REPORT = re.compile(
    r"(?:FAILED )?seed (?P<seed>\d+): (?P<sent>\d+) sent, (?P<delivered>\d+) delivered, "
    r"(?P<faults>\d+) faults, (?P<virtual_s>[\d.]+) virtual s in (?P<processor_s>[\d.]+) s"
)
FINDING = re.compile(r"\[(?P<promise>[^\]]+)\]")
TEXT_MAX = 110


def reports(text: str) -> list[str]:
    """The reports in a process's output, each with its findings; without the interpreter's own output."""
    return re.findall(r"^(?:FAILED )?seed .*(?:\n .*)*", text, re.MULTILINE)


def stretches(seeds: Iterable[int], length_max: int) -> Iterator[tuple[int, int]]:
    """Sorted seeds as (first seed, number of consecutive seeds), at most `length_max` each."""
    first = count = 0
    for seed in seeds:
        if count and (seed != first + count or count == length_max):
            yield first, count
            count = 0
        first, count = (first, count + 1) if count else (seed, 1)
    if count:
        yield first, count


@dataclass(slots=True)
class SeedResults:
    """The reports of the seeds that have run, by seed; with a path, also in this file."""

    options: RunOptions
    path: Path | None = None
    found: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the file, if it exists. Errors: Conflict if its runs had other options."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            self.path.write_text(self._heading())
        heading, _, text = self.path.read_text().partition("\n")
        if f"{heading}\n" != self._heading():
            raise Conflict(
                f"{self.path} has results of runs with other options ({heading[2:]}): name another file, or remove it"
            )
        self._keep(text)

    def remaining(self, first: int, count: int) -> list[int]:
        """The seeds without a result among `count` seeds from `first` on."""
        return [seed for seed in range(first, first + count) if seed not in self.found]

    def add(self, text: str) -> list[str]:
        """Keep the reports in a process's output, and return them."""
        added = self._keep(text)
        if self.path is not None and added:
            with self.path.open("a") as file:
                file.writelines(f"{one}\n" for one in added)
        return added

    def failures(self, seeds: Collection[int]) -> Mapping[int, str]:
        """The reports of the failed ones among these seeds."""
        return {seed: self.found[seed] for seed in sorted(seeds) if self.found.get(seed, "").startswith("FAILED")}

    def table(self, seeds: Collection[int]) -> str:
        """The results of these seeds as Markdown: sums, and a row for each kind of finding."""
        matches = [match for seed in seeds if (match := REPORT.match(self.found.get(seed, "")))]
        sums = {
            name: sum(float(match[name]) for match in matches)
            for name in ("sent", "delivered", "faults", "virtual_s", "processor_s")
        }
        failed = self.failures(seeds)
        lines = [
            "| seeds | failed | faults | sent | delivered | virtual hours | processor s | processor s a seed |",
            "|---|---|---|---|---|---|---|---|",
            f"| {len(matches)} | {len(failed)} | {sums['faults']:.0f} | {sums['sent']:.0f} | {sums['delivered']:.0f} "
            f"| {sums['virtual_s'] / 3600:.1f} | {sums['processor_s']:.0f} "
            f"| {sums['processor_s'] / max(1, len(matches)):.2f} |",
        ]
        kinds: dict[str, list[int]] = {}
        for seed, report in failed.items():
            kinds.setdefault(_promise(report), []).append(seed)
        if kinds:
            lines += ["", "| finding | seeds | first report |", "|---|---|---|"]
        for promise, found in kinds.items():
            text = failed[found[0]].splitlines()[1].strip()[:TEXT_MAX].replace("|", "\\|")
            lines.append(f"| {promise} | {', '.join(map(str, found))} | {text} |")
        return "\n".join(lines)

    def _heading(self) -> str:
        return f"# {' '.join(self.options.arguments()[2:])}\n"

    def _keep(self, text: str) -> list[str]:
        added = reports(text)
        self.found.update((int(match["seed"]), one) for one in added if (match := REPORT.match(one)))
        return added


def _promise(report: str) -> str:
    found = FINDING.search(report)
    return found["promise"] if found else "?"
