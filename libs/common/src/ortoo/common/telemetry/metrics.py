"""The interface between the counters of a process and their readers.

Components count in plain attributes, or in a `Histogram`; the code that handles messages does not know metrics. Each
role's `telemetry.py` registers the metrics. Their values are read at each scrape, so that deleted objects have no
series.

    metrics = Metrics()
    metrics.counter("rocketmq_messages_in_total", "Messages stored.", lambda: store.message_totals(), labels=("topic",))

Values are read in slices of limited work. Between two slices the event loop serves calls, and the state may change.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ortoo.common.process.long_work import slices
from ortoo.common.telemetry.histogram import Histogram

Number = int | float
Sample = tuple[tuple[str, ...], Number | Histogram]
"""One series of a family: the values of its labels, and its current value."""
Reading = Number | Histogram | Mapping[Any, Number | Histogram] | Iterable[Sample | None]
"""The values of a family; None = a step without a series, such as an entry that is left out.

An iterator is consumed slice by slice, so it must not iterate over a changing collection.
"""
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


Slice = tuple[Family | None, list[Sample]]
"""Some series of a family. The slices of one family follow each other; None = a slice of preparation."""


class Metrics:
    """All metrics of a process."""

    def __init__(self, *, series_max: int = SERIES_MAX) -> None:
        """Report at most `series_max` series of a family; further series are summed under the label value `_other`."""
        self.over_budget = 0
        """The number of series left out when the metrics were last read."""
        self._families: dict[str, Family] = {}
        self._preparations: list[Callable[[], Iterator[object]]] = []
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

    def prepare(self, steps: Callable[[], Iterator[object]]) -> None:
        """Before each reading, consume the iterator that `steps` returns: the work for values of several families."""
        self._preparations.append(steps)

    def slices(self) -> Iterator[Slice]:
        """Read every family once, at most `series_max` series of a family and SLICE_ITEMS series in a slice.

        A caller on an event loop lets the loop do other work after each slice, also after an empty one.
        """
        for steps in self._preparations:
            for _ in slices(steps()):
                yield None, []
        left_out = 0
        for family in list(self._families.values()):  # a copy: components may register metrics during a read
            left_out += yield from self._family_slices(family)
        self.over_budget = left_out

    def _add(self, family: Family) -> None:
        assert family.name not in self._families, f"{family.name} is already registered"
        self._families[family.name] = family

    def _family_slices(self, family: Family) -> Generator[Slice, None, int]:
        """The slices of one family; returns the number of series in the sum of the rest, 0 = there is no rest."""
        found = family.read()
        if isinstance(found, Histogram | int | float):
            yield family, [((), found)]
            return 0
        count, rest_count = 0, 0
        rest: Number = 0
        last: Sample = ((), 0)
        for steps in slices(list(found.items()) if isinstance(found, Mapping) else found):
            part = [sample for sample in steps if sample is not None]
            kept = part[: max(0, self._series_max - 1 - count)]
            count += len(part)
            yield family, kept
            for last in part[len(kept) :]:
                rest_count += 1
                rest += 0 if isinstance(last[1], Histogram) else last[1]
        if not count:
            yield family, []
        if rest_count == 1:
            yield family, [last]
            return 0
        if rest_count and not isinstance(last[1], Histogram):
            yield family, [((OTHER,) * len(family.labels), rest)]
        return rest_count
