"""Measured figures as rows of a table; each row has the ratio of our figure to the other's."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from bench.report import Figures
from bench.table import RESULTS, TELLS_LITTLE

FOLDER = RESULTS / "peers"
RESULT, TABLE, PICTURE = FOLDER / "peers.json", FOLDER / "table.md", FOLDER / "peers.svg"
OTHERS_MAX_PERCENT = 15
"""The processor share of other programs above which the table warns."""
REPLICAS = "an enode of three replicas, beside an enode of one replica"
"""The section that compares Ortoo with itself."""
HEAD = ("| case | Ortoo | compared with | ratio |", "| --- | --- | --- | --- |")


@dataclass(frozen=True, slots=True)
class PeerRow:
    """One comparison in one round."""

    section: str
    what: str
    ours: float
    theirs: float
    unit: str
    less_is_better: bool = False

    @property
    def ratio(self) -> float:
        """Our figure relative to the other's, larger is better: above 1, Ortoo is ahead."""
        one, other = (self.theirs, self.ours) if self.less_is_better else (self.ours, self.theirs)
        return one / other if other else float("nan")


@dataclass(frozen=True, slots=True)
class Compared:
    """The same comparison in all rounds."""

    rounds: tuple[PeerRow, ...]

    @property
    def section(self) -> str:
        """The part of the table."""
        return self.rounds[0].section

    @property
    def what(self) -> str:
        """The case."""
        return self.rounds[0].what

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        return median(one.ratio for one in self.rounds)

    def cells(self) -> str:
        """The line of the table: medians, with the smallest and the largest figure of the rounds."""
        unit = self.rounds[0].unit
        ours, theirs = ([_text(figure, unit) for figure in _span(some)] for some in self._sides())
        ratios = [f"{figure:.2f}" for figure in _span([one.ratio for one in self.rounds])]
        return f"| {self.what} | {_ranged(ours)} | {_ranged(theirs)} | {_ranged(ratios)} |"

    def _sides(self) -> tuple[list[float], list[float]]:
        return [one.ours for one in self.rounds], [one.theirs for one in self.rounds]


def _span(figures: Sequence[float]) -> tuple[float, float, float]:
    return median(figures), min(figures), max(figures)


def _ranged(texts: list[str]) -> str:
    middle, low, high = texts
    return middle if low == high else f"{middle} ({low} to {high})"


def _text(value: float, unit: str) -> str:
    """A figure with its unit, rounded to significant digits."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}{unit}"


def compared(result: Figures) -> list[Compared]:
    """All comparisons. In each section those come first in which the other system is ahead."""
    by_case: dict[tuple[str, str], list[PeerRow]] = {}
    for figures in _rounds(result):
        for row in rows(figures, result["versions"]):
            by_case.setdefault((row.section, row.what), []).append(row)
    found = [Compared(tuple(some)) for some in by_case.values()]
    sections = list(dict.fromkeys(one.section for one in found))
    return sorted(found, key=lambda one: (sections.index(one.section), one.ratio >= 1))


def _rounds(result: Figures) -> Iterator[Figures]:
    """The figures of each round, of every system by its name."""
    systems = result["systems"]
    for number in range(result["rounds"]):
        yield {name: {**one["start"], **one["rounds"][number]} for name, one in systems.items()}


def rows(systems: Figures, versions: Figures) -> list[PeerRow]:
    """All comparisons of one round of which both sides were measured."""
    found: list[PeerRow] = []
    if {"ortoo", "rocketmq"} <= systems.keys():
        section = f"one message at a time, by RocketMQ's own clients: RocketMQ {versions['rocketmq']} with SYNC_FLUSH"
        found += _single(section, systems["ortoo"], systems["rocketmq"])
    if {"ortoo in bulk", "kafka"} <= systems.keys():
        ours, theirs = systems["ortoo in bulk"], systems["kafka"]
        section = f"one Python process, beside Kafka {versions['kafka']}"
        found += _bulk(f"{section}, as it ships", ours, theirs, "shipped")
        found += _bulk(f"{section} with a flush a message", ours, theirs, "flushed")
    if {"ortoo of three", "kafka of three"} <= systems.keys():
        ours, theirs = systems["ortoo of three"], systems["kafka of three"]
        section = "an enode of three replicas, beside three Kafka brokers"
        found += _bulk(section, ours, theirs, "shipped")
        found += _bulk(f"{section} with a flush a message", ours, theirs, "flushed")
    if {"ortoo of three", "ortoo in bulk"} <= systems.keys():
        found += _members(systems["ortoo of three"], systems["ortoo in bulk"])
    return found


def _single(section: str, ours: Figures, theirs: Figures) -> Iterator[PeerRow]:
    for way, what in {
        "send 1": "Java: send, 1 in flight", "send 16": "Java: send, 16 in flight",
        "send 64": "Java: send, 64 in flight",
        "simple": "Java: SimpleConsumer, 16 threads, 32 a receive, each acknowledged",
        "push": "Java: PushConsumer, 16 threads",
        "python 1": "Python: send, 1 in flight", "python 16": "Python: send, 16 in flight",
    }.items():  # fmt: skip
        yield PeerRow(section, what, ours[way]["per_s"], theirs[way]["per_s"], "/s")
        if "send" in what:
            yield PeerRow(section, f"{what}, p50", ours[way]["p50_ms"], theirs[way]["p50_ms"], " ms", True)
    for name in ("p50", "p99"):
        key = f"{name}_ms"
        what = f"Java: send to listener at 200/s, {name}"
        yield PeerRow(section, what, ours["steady"][key], theirs["steady"][key], " ms", True)
    one, other = (sum(each["steady"]["cpu_us"].values()) / 1000 for each in (ours, theirs))
    yield PeerRow(section, "servers' processor time a message at 200/s", one, other, " ms", True)
    for state, when in {"idle": "idle", "loaded": "after the load"}.items():
        one, other = (each[state]["without_files_mib"] for each in (ours, theirs))
        yield PeerRow(section, f"memory of the servers, {when}", one, other, " MiB", True)
    one, other = (100 * each["idle_processor_share"] for each in (ours, theirs))
    yield PeerRow(section, "idle processor time, of one core", one, other, " %", True)
    yield PeerRow(section, "start to first send", ours["first_send_s"], theirs["first_send_s"], " s", True)


def _bulk(section: str, ours: Figures, theirs: Figures, topic: str) -> Iterator[PeerRow]:
    for way, what in {
        "many": "`send_many`; librdkafka's `produce_batch`",
        "each": "`enqueue`, a call each; `produce`",
        "tasks": "`await send` by 1,000 tasks; `AIOProducer`",
        "read": "consume from the first message",
    }.items():
        if f"bench {way}" in ours and f"{topic} {way}" in theirs:
            yield PeerRow(section, what, ours[f"bench {way}"]["per_s"], theirs[f"{topic} {way}"]["per_s"], "/s")
    for name in ("p50", "p99"):
        both = ours["bench steady"][f"{name}_ms"], theirs[f"{topic} steady"][f"{name}_ms"]
        yield PeerRow(section, f"send to acknowledgement at 200/s, {name}", *both, " ms", True)


def _members(three: Figures, one: Figures) -> Iterator[PeerRow]:
    section = REPLICAS
    yield PeerRow(section, "`send_many`", three["bench many"]["per_s"], one["bench many"]["per_s"], "/s")
    cpu, alone = three["bench many"]["cpu_us"], one["bench many"]["cpu_us"]["enode"]
    leader = "processor time a message: the leader beside the only replica"
    yield PeerRow(section, leader, cpu["leader"], alone, " µs", True)
    follower = fmean(us for name, us in cpu.items() if name.startswith("follower"))
    yield PeerRow(section, "processor time a message: a follower beside the only replica", follower, alone, " µs", True)
    both = three["bench steady"]["p99_ms"], one["bench steady"]["p99_ms"]
    yield PeerRow(section, "send to acknowledgement at 200/s, p99", *both, " ms", True)


def table(result: Figures) -> str:
    """The whole text: the setting, then a table a section."""
    lines, section = [setting(result)], ""
    for one in compared(result):
        if one.section != section:
            section = one.section
            lines += ["", f"**{section[0].upper()}{section[1:]}**", "", *HEAD]
        lines.append(one.cells())
    return "\n".join(lines) + "\n"


def setting(result: Figures) -> str:
    """The setting of the measurement."""
    one, versions, systems = result["setting"], result["versions"], result["systems"]
    rounds = [each for system in systems.values() for each in system["rounds"]]
    loads = [load for each in rounds for load in each["load_average"].values()]
    others = [100 * each["others_share"] for each in rounds]
    warm = [load for system in systems.values() for load in system["warm_up"].values()]
    caveat = TELLS_LITTLE if max(others) > OTHERS_MAX_PERCENT else ""
    ahead = [each.ratio >= 1 for each in compared(result) if each.section != REPLICAS]
    return (
        f"Ortoo is ahead in {sum(ahead)} of {len(ahead)} rows, the other system in {len(ahead) - sum(ahead)}; these "
        "come first in each table. "
        f"Measured by `make bench-peers` on {one['cores']} cores and {one['memory_gib']} GiB, every process on it. "
        f"Linux {one['kernel'].split('-')[0]}, Python {one['python']} ({one['python_build']}), Ortoo's transport "
        f"`{one['transport']}`, Java {versions['java']}, RocketMQ's Java client {versions['client']}, confluent-kafka "
        f"{versions['confluent-kafka']}. "
        f"{result['method']} Rounds: {result['rounds']}. Figures are medians, with the smallest and the largest of the "
        f"rounds. A figure takes {result['seconds']:g} seconds, in bulk half of that except for reading. Bodies have "
        f"256 bytes, and topics 8 queues. Of {len(warm)} loads, {sum(load['steady'] for load in warm)} were steady "
        f"after their warm-up. Load average, of which the load itself is a part: {min(loads):.1f} to "
        f"{max(loads):.1f}. Unrelated programs took {min(others):.0f} to {max(others):.0f} % of the machine "
        f"meanwhile{caveat}. A ratio above 1 means that Ortoo is ahead; for times and memory, less is better."
    )


def load(path: Path = RESULT) -> Figures:
    """The committed result. Errors: FileNotFoundError."""
    result: Figures = json.loads(path.read_text())
    return result
