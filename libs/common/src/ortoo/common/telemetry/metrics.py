"""The interface between the counters of a process and their readers.

Components count in plain attributes, or in a `Histogram`; the code that handles messages does not know metrics. Each
role's `telemetry.py` registers the metrics. Their values are read at each scrape, so that deleted objects have no
series.

    metrics = Metrics()
    metrics.counter("rocketmq_messages_in_total", "Messages stored.", lambda: store.message_totals(), labels=("topic",))
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ortoo.common.telemetry.histogram import Histogram

Number = int | float
Sample = tuple[tuple[str, ...], Number | Histogram]
"""One series of a family: the values of its labels, and its current value."""
Reading = Number | Histogram | Mapping[Any, Number | Histogram] | Iterable[Sample]
Kind = Literal["counter", "gauge", "histogram"]
SERIES_MAX: Final = 50_000
OTHER: Final = "_other"
"""The label value of the sum of all series above the maximum."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: all series of a name."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    read: Callable[[], Reading]


class Metrics:
    """All metrics of a process."""

    def __init__(self, *, series_max: int = SERIES_MAX) -> None:
        """Report at most `series_max` series of a family; further series are summed under the label value `_other`."""
        self.over_budget = 0
        """The number of series left out when the metrics were last read."""
        self._families: dict[str, Family] = {}
        self._series_max = series_max
        self.gauge(
            "ortoo_metric_series_over_budget",
            "Series summed up under the label value _other because of the cardinality budget.",
            lambda: self.over_budget,
        )

    def counter(self, name: str, help: str, read: Callable[[], Reading], *, labels: Sequence[str] = ()) -> None:  # noqa: A002  # as it is called everywhere
        """Register a counter, a number that only grows; `name` ends with `_total`, and `read` returns its values."""
        self._add(Family(name, "counter", help, tuple(labels), read))

    def gauge(self, name: str, help: str, read: Callable[[], Reading], *, labels: Sequence[str] = ()) -> None:  # noqa: A002
        """Register a gauge, a number that goes up and down; `read` returns its values."""
        self._add(Family(name, "gauge", help, tuple(labels), read))

    def histogram(self, name: str, help: str, read: Callable[[], Reading], *, labels: Sequence[str] = ()) -> None:  # noqa: A002
        """Register a histogram, the number of values in each bucket; `read` returns its values."""
        self._add(Family(name, "histogram", help, tuple(labels), read))

    @property
    def names(self) -> frozenset[str]:
        """The names of the registered metrics."""
        return frozenset(self._families)

    def forget(self, names: Collection[str]) -> None:
        """Remove these metrics; their names may be registered again."""
        for name in names:
            del self._families[name]

    def read(self) -> Iterator[tuple[Family, list[Sample]]]:
        """Every family with its current series, at most `series_max` of a family."""
        left_out = 0
        for family in list(self._families.values()):  # a copy: components may register metrics during a read
            samples, over = self._samples(family)
            left_out += over
            yield family, samples
        self.over_budget = left_out

    def _add(self, family: Family) -> None:
        assert family.name not in self._families, f"{family.name} is already registered"
        self._families[family.name] = family

    def _samples(self, family: Family) -> tuple[list[Sample], int]:
        found = family.read()
        if isinstance(found, Histogram | int | float):
            return [((), found)], 0
        samples = list(found.items() if isinstance(found, Mapping) else found)
        over = len(samples) - self._series_max
        if over <= 0:
            return samples, 0
        rest = samples[self._series_max - 1 :]
        del samples[self._series_max - 1 :]
        numbers = [value for _, value in rest if not isinstance(value, Histogram)]
        if numbers:
            samples.append(((OTHER,) * len(family.labels), sum(numbers)))
        return samples, over + 1
