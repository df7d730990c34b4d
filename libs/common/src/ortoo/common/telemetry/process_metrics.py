"""The metrics of every process: processor time, memory, files, clock, certificates, delays of its event loop."""

import os
import resource
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from ortoo.common.errors.findings import Finding, process_version
from ortoo.common.errors.status import FAILURES_RETURNED
from ortoo.common.logs.logger import dropped_line_count
from ortoo.common.machine.allocator import resident_bytes
from ortoo.common.machine.certificates import DAY_MS, EXPIRES_NOW_MS, EXPIRES_SOON_MS, CertificateFile, Validity
from ortoo.common.machine.descriptors import FEW, Descriptors, open_descriptors
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import CONTAINED_FAILURES
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.telemetry.histogram import DELAY_S, Histogram
from ortoo.common.telemetry.metrics import Metrics

LOOP_PROBE_S = 0.5
PROBES_KEPT = 6
DESCRIPTORS_PERCENT = 90
"""The percentage of the limit from which the number of open descriptors is a finding."""
LATE_S = 0.3
"""An event loop that is usually this late has too little processor time."""


class ProcessMetrics:
    """The metrics of this process, read at each request; the event loop is probed twice a second."""

    def __init__(self, role: str, name: str, clock: Clock, certificates: Sequence[CertificateFile] = ()) -> None:
        """Begin with nothing observed; `certificates` are the files that the process uses."""
        self._certificates = certificates
        self.scrape_s = 0.0
        self._labels = (role, name, process_version(), f"{sys.version_info[0]}.{sys.version_info[1]}")
        self._clock = clock
        self._loop_delay = Histogram(DELAY_S)
        self._late_s: deque[float] = deque(maxlen=PROBES_KEPT)
        self._started_s = clock.now_ms() / 1000

    def record_scrape(self, duration_s: float) -> None:
        """Note the duration of the last scrape."""
        self.scrape_s = duration_s

    async def probe_loop(self) -> None:
        """Measure the delay of the event loop until cancelled. It reads only clocks, so a failure ends the process."""
        while True:
            due_s = self._clock.monotonic_s() + LOOP_PROBE_S
            await self._clock.sleep(LOOP_PROBE_S)
            late_s = max(0.0, self._clock.monotonic_s() - due_s)
            self._loop_delay.observe(late_s)
            self._late_s.append(late_s)

    def findings(self) -> Iterator[Finding]:
        """The findings of the event loop's delay, the descriptors and the certificates."""
        yield from certificate_findings(self._certificates, self._clock.now_ms())
        yield from descriptor_findings(Descriptors.of_process(), open_descriptors())
        usual_s = sorted(self._late_s)[len(self._late_s) // 2] if len(self._late_s) == PROBES_KEPT else 0.0
        if usual_s > LATE_S:
            yield Finding(
                "event loop lag",
                f"its event loop serves timers {usual_s:.1f} s late",
                "all of its work is delayed by this time, and leases may expire",
                "give it more processor time, add snodes, or move topics to another enode",
            )

    def register(self, metrics: Metrics) -> None:
        """Register the metrics of the process."""
        labels = ("node_type", "node_id", "version", "python")
        metrics.gauge("ortoo_build_info", "Always 1; the labels identify it.", lambda: {self._labels: 1}, labels=labels)
        metrics.gauge(
            "ortoo_clock_seconds",
            "The clock of the process at the scrape, in seconds since 1970.",
            lambda: self._clock.now_ms() / 1000,
        )
        metrics.gauge(
            "ortoo_certificate_expiry_timestamp_seconds",
            "End of the validity of the certificates in a file, by the setting that names the file.",
            lambda: self._validity_times_s(lambda one: one.ends_ms),
            labels=("setting",),
        )
        metrics.gauge(
            "ortoo_certificate_begin_timestamp_seconds",
            "Begin of that validity.",
            lambda: self._validity_times_s(lambda one: one.begins_ms),
            labels=("setting",),
        )
        metrics.gauge("process_start_time_seconds", "When the process started.", lambda: self._started_s)
        metrics.counter("process_cpu_seconds_total", "Processor time used.", _cpu_s)
        metrics.gauge("ortoo_cores", "Number of cores the process may use.", _cores)
        metrics.gauge("process_resident_memory_bytes", "Memory in use.", _resident_bytes)
        metrics.gauge("process_open_fds", "Open files and sockets.", open_descriptors)
        metrics.gauge("process_max_fds", "Limit of open files and sockets.", lambda: Descriptors.of_process().limit)
        metrics.histogram(
            "ortoo_event_loop_delay_seconds", "Delay of timers in the event loop.", lambda: self._loop_delay
        )
        metrics.counter(
            "ortoo_failures_total",
            "Failures reported to callers, as a call's status or within a stream.",
            lambda: [((kind,), count) for kind, count in FAILURES_RETURNED.items()],
            labels=("kind",),
        )
        metrics.counter(
            "ortoo_contained_failures_total",
            "Failures that ended only the work for one peer or request, by place.",
            lambda: [((where,), count) for where, count in CONTAINED_FAILURES.items()],
            labels=("where",),
        )
        metrics.counter(
            "ortoo_log_lines_dropped_total",
            "Log lines dropped because standard error was closed or full, or its reader was too slow.",
            dropped_line_count,
        )
        metrics.gauge("ortoo_scrape_duration_seconds", "Duration of the last scrape.", lambda: self.scrape_s)

    def _validity_times_s(self, time_ms: Callable[[Validity], int]) -> dict[tuple[str], float]:
        found = {file.setting: file.validity() for file in self._certificates}
        return {(setting,): time_ms(one) / 1000 for setting, one in found.items() if one is not None}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return round(used.ru_utime + used.ru_stime, 3)


def _cores() -> int:
    return len(os.sched_getaffinity(os.getpid())) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _resident_bytes() -> int:
    """The resident memory; if the system does not report it, the largest resident memory since the start."""
    return resident_bytes() or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def descriptor_findings(descriptors: Descriptors, used: int) -> Iterator[Finding]:
    """The finding of a process with `used` open descriptors, if few descriptors are left or the limit is low."""
    if used * 100 >= descriptors.limit * DESCRIPTORS_PERCENT:
        yield Finding(
            "file descriptors exhausted",
            f"{used} of {descriptors.limit} file descriptors are open",
            "new connections, reads of earlier messages and new segments are refused until some are closed",
            "raise the limit of open files (ulimit -n, LimitNOFILE=), then restart the process",
        )
    elif descriptors.are_few:
        yield Finding(
            "low file descriptor limit",
            f"the process may have {descriptors.limit} file descriptors; {FEW} or more are recommended",
            f"it takes about {descriptors.connections} connections; further ones are closed at once",
            "raise the hard limit of open files (ulimit -Hn, LimitNOFILE=), then restart the process",
            critical=False,
        )


def certificate_findings(files: Sequence[CertificateFile], now_ms: int) -> Iterator[Finding]:
    """The findings of certificates that have expired or soon expire."""
    for file in files:
        found = file.validity()
        if found is None or not found.is_within(EXPIRES_SOON_MS, now_ms):
            continue
        kind = "trusted root" if file.is_roots else "certificate"
        day = datetime.fromtimestamp(found.ends_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
        left_ms = found.left_ms(now_ms)
        is_over = left_ms <= 0
        time = f"expired on {day}" if is_over else f"expires in {left_ms / DAY_MS:.1f} days, on {day}"
        yield Finding(
            "certificate expired" if is_over else "certificate expires",
            f"the {kind} in {file.path} ({file.setting}) {time}",
            "new connections with it fail" if is_over else "no new connection with it succeeds from then on",
            f"replace the file by one with a renewed {kind}; it is read again without a restart",
            critical=found.is_within(EXPIRES_NOW_MS, now_ms),
            subject=file.setting,
        )


def register_connections(metrics: Metrics, ended: Callable[[], Mapping[str, int]]) -> None:
    """Register the metrics of connections that the process closed."""
    metrics.counter(
        "ortoo_connections_ended_total",
        "Connections that the process ended because of what their peers did, by reason.",
        lambda: {(reason,): count for reason, count in ended().items()},
        labels=("reason",),
    )


def register_memory(metrics: Metrics, budget: MemoryBudget) -> None:
    """Register the metrics of the memory that clients use in this process."""
    kind = ("kind",)
    metrics.gauge("ortoo_memory_budget_bytes", "Memory budget for the calls of all clients.", lambda: budget.bytes_max)
    metrics.gauge("ortoo_memory_used_bytes", "Memory used for calls of clients, by kind.", budget.by_kind, labels=kind)
    metrics.counter(
        "ortoo_memory_refused_total",
        "Requests for memory refused by the budget, by kind.",
        lambda: {(name,): count for name, count in budget.refused.items()},
        labels=kind,
    )
    metrics.counter(
        "ortoo_memory_evicted_total",
        "Sessions and streams of slow readers ended because the budget was used up, by kind.",
        lambda: {(name,): count for name, count in budget.evicted.items()},
        labels=kind,
    )
