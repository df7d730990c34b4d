"""The metrics and health of a snode with several workers, merged at one address."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from ortoo.common.process.clock import Clock
from ortoo.common.telemetry.endpoint import MetricsEndpoint
from ortoo.common.telemetry.metrics import Metrics
from ortoo.common.telemetry.process_metrics import ProcessMetrics
from ortoo.common.telemetry.text import chunks
from ortoo.snode.workers.process import WorkerProcess

LABEL = "worker"
PARENT = "parent"
"""Label of the parent's own CPU time and memory."""
NOT_OF_PARENT = ("ortoo_build_info", "ortoo_metric_series_over_budget", "ortoo_event_loop_delay_seconds")


class WorkersEndpoint(MetricsEndpoint):
    """An HTTP endpoint for all workers: their metrics, with the label `worker`, and whether all are ready and alive."""

    def __init__(self, address: str, name: str, workers: Sequence[WorkerProcess], clock: Clock) -> None:
        """Serve on host:port for the workers of snode `name`."""
        about, self._own = Metrics(), Metrics()
        about.forget(["ortoo_metric_series_over_budget"])
        about.gauge(
            "ortoo_worker_ready",
            "1 while a worker serves.",
            lambda: {(str(one.worker.number),): int(one.is_ready) for one in workers},
            labels=(LABEL,),
        )
        about.counter(
            "ortoo_worker_starts_total",
            "Starts of a worker.",
            lambda: {(str(one.worker.number),): one.starts for one in workers},
            labels=(LABEL,),
        )
        process = ProcessMetrics("snode", name, clock)
        process.register(self._own)
        self._own.forget(NOT_OF_PARENT)
        super().__init__(address, about, ready=lambda: True, clock=clock, on_scrape=process.record_scrape)
        self._workers = workers

    async def _is_alive(self) -> bool:
        return await self._all("/healthz")

    async def _is_ready(self) -> bool:
        return await self._all("/readyz")

    async def _all(self, path: str) -> bool:
        answers = await asyncio.gather(*(one.query(path) for one in self._workers))
        return all(status == 200 for status, _ in answers)

    async def _parts(self, *, zeros: bool) -> AsyncIterator[str]:
        async for part in super()._parts(zeros=zeros):
            yield part
        target = "/metrics" if zeros else "/metrics?zeros=no"
        answers = await asyncio.gather(*(one.query(target) for one in self._workers))
        texts = {str(one.worker.number): text for one, (_, text) in zip(self._workers, answers, strict=True)}
        for part in merge_metrics({**texts, PARENT: "".join(chunks(self._own, zeros=zeros))}):
            yield part


def merge_metrics(texts: Mapping[str, str]) -> Iterator[str]:
    """Merge texts of metrics in Prometheus' format; the keys of `texts` become the label of their series.

    Each metric family appears once in the result.
    """
    heads: dict[str, str] = {}
    series: dict[str, list[str]] = {}
    for label, text in texts.items():
        family = ""
        for line in text.splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
                heads.setdefault(family, line)
            elif line.startswith("#"):
                heads[family] = f"{heads[family].splitlines()[0]}\n{line}"
            elif line:
                series.setdefault(family, []).append(_add_label(line, label))
    for family, lines in series.items():
        yield "\n".join([heads[family], *lines, ""])


def _add_label(line: str, value: str) -> str:
    name = line.split(" ", 1)[0].split("{", 1)[0]
    rest = line[len(name) :]
    return f'{name}{{{LABEL}="{value}",{rest[1:]}' if rest.startswith("{") else f'{name}{{{LABEL}="{value}"}}{rest}'
