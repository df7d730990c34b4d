"""Metrics in Prometheus's text format, version 0.0.4.

The event loop renders the text in chunks of limited length, and calls wait for one chunk at most. In a thread, the
rendering would compete with the event loop for the interpreter. `prometheus_client` needs eight times as long for a
series, and renders all series at once.
`python -m bench.telemetry` compares the two.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from ortoo.common.telemetry.histogram import Histogram
from ortoo.common.telemetry.metrics import Family, Metrics, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def chunks(metrics: Metrics, *, zeros: bool = True) -> Iterator[str]:
    """The metrics in Prometheus's text format, one text for each slice; a slice without series has an empty text.

    Without `zeros`, labelled gauges of 0 are left out.
    """
    current: Family | None = None
    for family, samples in metrics.slices():
        if family is not None and not zeros and family.labels and family.kind == "gauge":
            samples = [(values, value) for values, value in samples if value != 0]
        if family is None or not samples:
            yield ""
            continue
        head = f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
        yield (head if family is not current else "") + _series_text(family, samples)
        current = family


def _series_text(family: Family, samples: Sequence[Sample]) -> str:
    name, lines = family.name, []
    for values, value in samples:
        labels = _labels(family.labels, values)
        if isinstance(value, Histogram):
            lines += _histogram_lines(name, labels, value)
        elif labels:
            lines.append(f"{name}{{{labels}}} {value}")
        else:
            lines.append(f"{name} {value}")
    lines.append("")
    return "\n".join(lines)


def _histogram_lines(name: str, labels: str, histogram: Histogram) -> list[str]:
    lines, below = [], 0
    comma = "," if labels else ""
    for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
        below += count
        le = "+Inf" if bound is None else f"{bound:g}"
        lines.append(f'{name}_bucket{{{labels}{comma}le="{le}"}} {below}')
    braces = f"{{{labels}}}" if labels else ""
    lines += [f"{name}_sum{braces} {histogram.total}", f"{name}_count{braces} {below}"]
    return lines


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if len(names) == 2:  # the most frequent case: a topic and a group
        return f'{names[0]}="{_escaped(values[0])}",{names[1]}="{_escaped(values[1])}"'
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))


@lru_cache(maxsize=65_536)
def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
