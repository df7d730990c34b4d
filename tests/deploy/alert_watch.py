"""Watches the alerts of a Prometheus that scrapes two clusters, while the faults are in one of them."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from ortoo.common.process.clock import SystemClock
from tests.deploy.alert_scene import Scene
from tests.deploy.prometheus import CLUSTER, SPEED, Prometheus

FAULTY, HEALTHY = "faulty", "healthy"
"""The names of the cluster with the faults, and of the one without."""
FIRES_WITHIN_S = 60.0
RESOLVES_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and the alerts that must and may fire then."""

    make: Callable[[Scene], AbstractAsyncContextManager[None]]
    alerts: frozenset[str]
    beside: frozenset[str] = frozenset()

    @property
    def what(self) -> str:
        """A short description."""
        return (self.make.__doc__ or "").rstrip(".")


@dataclass(frozen=True, slots=True)
class Fired:
    """An alert that fired by its fault, and the times after the begin and after the end of the fault."""

    alert: str
    fault: str
    fired_s: float
    resolved_s: float
    """Infinite if it did not resolve."""


@dataclass(slots=True)
class Report:
    """The results of a run."""

    rows: list[Fired] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Alerts of a fault that did not fire or did not resolve, or that fired for the healthy cluster."""
    false_alarms: list[str] = field(default_factory=list)
    """Alerts of either cluster that fired without their fault. On a loaded machine some of them may be true."""

    def table(self) -> str:
        """All rows as text, with the times of this run and, in minutes, those of production."""
        lines = [f"{'alert':32}{'fired after':>22}{'resolved after':>22}  fault"]
        for one in self.rows:
            times = (f"{s:.1f} s ({s * SPEED / 60:.1f} min)" for s in (one.fired_s, one.resolved_s))
            lines.append(f"{one.alert:32}{next(times):>22}{next(times):>22}  {one.fault}")
        return "\n".join([*lines, *self.wrong, *self.false_alarms, ""])


class AlertWatch:
    """Compares the firing alerts with the faults, and writes the result into `report`."""

    def __init__(self, scene: Scene, server: Prometheus) -> None:
        """Watch the alerts of `server`, while faults are injected into `scene`."""
        self.report = Report()
        self._scene = scene
        self._server = server
        self._clock = SystemClock()

    async def stays_silent(self, seconds: float) -> None:
        """No alert may fire for this time."""
        end_s = self._clock.monotonic_s() + seconds
        while self._clock.monotonic_s() < end_s:
            await self._clock.sleep(0.5)
            await self._firing("without a fault", frozenset())

    async def during(self, fault: Fault) -> None:
        """Inject a fault: its alerts must fire, and resolve when it has ended. Then wait until no other fires."""
        begun_s = self._clock.monotonic_s()
        fired: dict[str, float] = {}
        gone: dict[str, float] = {}

        async def all_fire() -> bool:
            for alert in await self._firing(fault.what, fault.alerts | fault.beside | fired.keys()):
                fired.setdefault(alert, self._clock.monotonic_s() - begun_s)
            return fault.alerts <= fired.keys()

        async def all_gone() -> bool:
            left = await self._firing(f"after the end of: {fault.what}", fault.alerts | fault.beside | fired.keys())
            for alert in fired.keys() - left:
                gone.setdefault(alert, self._clock.monotonic_s() - begun_s)
            return not fault.alerts & left

        async with fault.make(self._scene):
            try:
                await self._server.until(all_fire, FIRES_WITHIN_S)
            except TimeoutError:
                self.report.wrong.append(f"{fault.what}: {sorted(fault.alerts - fired.keys())} did not fire")
        begun_s = self._clock.monotonic_s()
        try:
            await self._server.until(all_gone, RESOLVES_WITHIN_S)
        except TimeoutError:
            self.report.wrong.append(f"{fault.what}: {await self._server.alerts()} still fires")
        with contextlib.suppress(TimeoutError):  # its other alerts must not disturb the next fault
            await self._server.until(self._is_quiet, RESOLVES_WITHIN_S)
        for alert in sorted(fault.alerts & fired.keys()):
            self.report.rows.append(Fired(alert, fault.what, fired[alert], gone.get(alert, float("inf"))))

    async def _firing(self, when: str, allowed: frozenset[str]) -> set[str]:
        """The firing alerts of the faulty cluster. Report those that are not allowed, and all of the healthy one.

        Only `allowed` alerts can be mixed up between the clusters. Others have a reason of their own.
        """
        found = set()
        for alert, about in (await self._alerts()).items():
            ours = [one for one in about if one.get(CLUSTER) == FAULTY]
            if others := [one for one in about if one.get(CLUSTER) != FAULTY]:
                kind = self.report.wrong if alert in allowed else self.report.false_alarms
                _add(kind, f"{when}: {alert} fires for another cluster: {others}")
            if ours:
                found.add(alert)
            if ours and alert not in allowed:
                _add(self.report.false_alarms, f"{when}: {alert} fires too: {ours}")
        return found

    async def _alerts(self) -> dict[str, list[dict[str, str]]]:
        """The firing alerts. Until the first fault, the clock of an enode is late, which is no false alarm."""
        alerts = await self._server.alerts()
        if self._scene.enode.is_late:
            alerts.pop("OrtooClockDiffers", None)
        return alerts

    async def _is_quiet(self) -> bool:
        return not (await self._alerts() or await self._server.alerts("pending"))


def _add(texts: list[str], text: str) -> None:
    if text not in texts:
        texts.append(text)
