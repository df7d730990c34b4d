"""One run, from beginning to end: start, faults, rest, comparison, stop."""

import asyncio
import contextlib
import functools
import gc
import importlib
import resource
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TextIO

from ortoo.client import Client
from ortoo.common.process.randomness import Randomness
from ortoo.snode.settings import ReadFrom
from ortoo.testing.simulation.cluster.cluster import ClusterShape, SimulatedCluster
from ortoo.testing.simulation.cluster.roles import STORE
from ortoo.testing.simulation.kernel.event_loop import SimulationStuck
from ortoo.testing.simulation.kernel.random_streams import RandomStreams
from ortoo.testing.simulation.world import World
from ortoo.verification.simulation.duties.replica_duties import ReplicaDuties
from ortoo.verification.simulation.logs import simulated_logs
from ortoo.verification.simulation.oracle.oracle import Oracle
from ortoo.verification.simulation.run.agreement import differences
from ortoo.verification.simulation.run.injector import FaultInjector
from ortoo.verification.simulation.run.outcome import RunOptions, RunOutcome
from ortoo.verification.simulation.run.plan import PlannedFault, draw_plan
from ortoo.verification.simulation.run.replica_injector import ReplicaFaultInjector
from ortoo.verification.simulation.run.scenarios import SCENARIOS, WITH_REPLICAS
from ortoo.verification.simulation.workload.application import Application
from ortoo.verification.simulation.workload.scenario import Scenario

SETTLE_S = 180.0
"""Everything must come to rest within this virtual time after the last fault."""
AGREE_S = 30.0
"""Every replica must have the same log and the same state within this time after that."""
DAMAGED_S = 60.0
"""The time to wait for a cluster that has lost bytes."""
LAST_CUT = 0.3
"""The probability of a power cut everywhere at the end."""
RETENTION: dict[str, Any] = {
    "retention_age_ms": 0, "retention_requires_acknowledgement": True, "retention_interval_ms": 2_000,
    "checkpoint_records": 60, "checkpoint_slice_bytes": 400,
}  # fmt: skip
"""Small checkpoints, so that segments become full, and no segment waits long for a checkpoint."""
LIMIT_S = 600.0
"""The maximum duration of a run beyond its faults."""
STOP_S = 30.0
"""The time within which a program that is asked to end must end."""
LOOK_S = 0.5
SCENARIO_DRAWN = 0.2
"""The probability that a scenario takes part. Many small runs find more than few large ones."""
RATE_PER_S = (0.5, 4.0)
COLLECT_S = 30.0
"""The interval of garbage collections in virtual time, and their only moments: finalizers are part of the run."""


class SimulationRun:
    """One run."""

    def __init__(self, choices: RunOptions, *, trace_file: TextIO | None = None) -> None:
        """A run that has not started."""
        self.options = choices
        self._chance: Randomness = RandomStreams(choices.seed).stream("run")
        self.shape = ClusterShape(
            name_servers=1 + (self._chance.below(4) == 0),
            enodes=1 + self._chance.below(2),
            snodes=1 + self._chance.below(2),
        )
        if choices.replicas > 1:
            self.shape = replace(self.shape, enodes=1, replicas=choices.replicas)
        self.world = World(choices.seed, trace_file=trace_file, name_servers=self.shape.name_servers)
        self.oracle = Oracle(self.world)
        self.faults: list[PlannedFault] = []
        self.cluster = SimulatedCluster(self.world, self.shape)
        self.duties = ReplicaDuties(self.cluster, self.world.violations) if choices.replicas > 1 else None
        if choices.retention_bytes:
            self.oracle.has_retention = True
            for enode in self.cluster.stores:
                enode.chosen["store"] = replace(STORE, retention_bytes=choices.retention_bytes, **RETENTION)
        for snode in self.cluster.snodes:
            snode.chosen["read_from"] = list(ReadFrom)[choices.seed % len(ReadFrom)]
        self.scenarios: list[Scenario] = [
            SCENARIOS[name](
                self.cluster,
                self.oracle,
                rate_per_s=self._chance.uniform(*RATE_PER_S),
                is_faultless=not choices.faults,
            )
            for name in (choices.scenarios or self._drawn_scenarios())
        ]
        self.auditor = Application(self.oracle, "auditor", self.cluster.addresses, self._audit)
        self._phase = ""
        self._auditor_work: asyncio.Queue[Coroutine[Any, Any, None] | None] = asyncio.Queue()

    def run(self, *, log_file: TextIO | None = None) -> RunOutcome:
        """Run it. Findings are in the outcome; only a defect of the simulation itself is raised."""
        begun_s = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        loop = self.world.loop
        with simulated_logs(self.world, log_file), self.world.running():
            try:
                loop.run_until_complete(loop.create_task(self._whole(), context=loop.outside.context))
            except SimulationStuck as stuck:
                self.world.violations.add("nothing hangs", str(stuck))
            # Errors of dead processes at their burial do not matter.
            found = tuple(self.world.violations.all)
            virtual_s, digest, lines = loop.time(), self.world.trace.digest, self.world.trace.lines
        return RunOutcome(
            self.options,
            found,
            self.faults,
            digest,
            lines,
            virtual_s,
            resource.getrusage(resource.RUSAGE_SELF).ru_utime - begun_s,
            len(self.oracle.sent),
            self.oracle.received.count,
        )

    def _drawn_scenarios(self) -> list[str]:
        names = sorted(name for name in SCENARIOS if name != WITH_REPLICAS)
        chosen = [name for name in names if self._chance.uniform(0, 1) < SCENARIO_DRAWN]
        chosen = chosen or [names[self._chance.below(len(names))]]
        return [*chosen, WITH_REPLICAS] if self.options.replicas > 1 else chosen

    @property
    def applications(self) -> list[Application]:
        """All client machines that may get faults."""
        return [application for scenario in self.scenarios for application in scenario.applications]

    async def _whole(self) -> None:
        loop = self.world.loop
        collecting = loop.create_task(self._collect(), context=loop.outside.context.copy())
        phases = loop.create_task(self._phases(), context=loop.outside.context.copy())
        wrong = loop.create_task(self.world.violations.some.wait(), context=loop.outside.context.copy())
        limit_s = self.options.seconds + LIMIT_S
        done, _ = await asyncio.wait({phases, wrong}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            self.world.violations.add("nothing hangs", f"after {limit_s:.0f} s: {self._phase}")
        for task in (phases, wrong, collecting):
            task.cancel()
        if phases in done:
            phases.result()

    async def _phases(self) -> None:
        self._phase = "the cluster starts"
        await self.cluster.start()
        self._phase = "topics are made"
        self.auditor.start()
        await self._ask(self._prepare)
        for application in self.applications:
            application.start()
        if self.duties is None:
            injector = FaultInjector(self.cluster, self.applications, self.oracle)
        else:
            injector = ReplicaFaultInjector(self.cluster, self.applications, self.oracle, self.duties)
        self._phase = "faults happen"
        await self._trouble(injector)
        self._phase = "senders end"
        await self._stop_all([one for scenario in self.scenarios for one in scenario.senders])
        self._phase = "everything comes to rest"
        if await self._settled():
            if self.cluster.replicas:
                self._phase = "the replicas are compared"
                await self._compare_replicas(injector.flipped)
            self._phase = "stored messages are compared"
            await self._compare()
        self._phase = "everything ends"
        await self._stop_all([*(one for scenario in self.scenarios for one in scenario.consumers), self.auditor])
        await self._stop_all(self.cluster.snodes)
        await self._stop_all(self.cluster.stores)
        await self._stop_all(self.cluster.name_servers)

    async def _trouble(self, injector: FaultInjector) -> None:
        seconds = self.options.seconds
        if self.options.faults:
            planned = draw_plan(
                self.world.random_streams.stream("faults"),
                self.shape,
                [application.name for application in self.applications],
                seconds=seconds,
                kinds=self.options.kinds or None,
            )
            self.faults = [fault for fault in planned if fault.number not in self.options.without]
        begun_s = self.world.loop.time()
        await injector.run(self.faults)
        await self.world.clock.sleep(max(0.0, begun_s + seconds - self.world.loop.time()))
        await injector.undo_all()

    async def _compare(self) -> None:
        """Compare the stored messages with the model, in many runs again after a power cut everywhere."""
        if self.oracle.damaged:
            with contextlib.suppress(TimeoutError):  # an enode may refuse to start on damaged data
                async with asyncio.timeout(DAMAGED_S):
                    await self._ask(self._check)
            return
        await self._ask(self._check)
        if self._chance.uniform(0, 1) < LAST_CUT:
            self._phase = "the power comes back everywhere"
            for enode in self.cluster.stores:
                enode.cut_power()
                self.oracle.disturbed(enode.name)
            for enode in self.cluster.stores:
                enode.start()
            await self._ask(self._check)

    async def _compare_replicas(self, flipped: str) -> None:
        """Compare the replicas' logs and states, when all have everything."""
        deadline_s = self.world.loop.time() + AGREE_S
        assert self.duties is not None
        while difference := differences(self.cluster.replicas, flipped=flipped) or self.duties.undurable():
            if self.world.loop.time() > deadline_s:
                self.world.violations.add("members agree", difference)
                return
            await self.world.clock.sleep(LOOK_S)

    async def _settled(self) -> bool:
        """Wait until everything has come to rest; a finding if it does not."""
        deadline_s = self.world.loop.time() + (DAMAGED_S if self.oracle.damaged else SETTLE_S)
        while True:
            unsettled = next(filter(None, (scenario.unsettled() for scenario in self.scenarios)), "")
            if not unsettled:
                return True
            if self.world.violations:
                return False
            if self.world.loop.time() > deadline_s and self.oracle.damaged:
                return True  # messages lost with a disk are not waited for; next, the report of the loss is checked
            if self.world.loop.time() > deadline_s:
                self.world.violations.add("G2", f"{SETTLE_S:.0f} s after the last fault: {unsettled}")
                return False
            await self.world.clock.sleep(LOOK_S)

    async def _stop_all(self, machines: "list[Any]") -> None:
        """Ask machines to end; a finding for each that does not in time."""
        loop = self.world.loop
        tasks = {loop.create_task(one.stop(), context=loop.outside.context.copy()): one for one in machines}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=STOP_S)
        for task in sorted(late, key=lambda one: tasks[one].name):
            machine = tasks[task]
            where = [one.get_name() for one in machine.process.tasks()][:8] if machine.process else []
            self.world.violations.add("a stop ends", f"{machine.name} has not ended after {STOP_S:.0f} s: {where}")
            machine.kill()

    async def _ask(self, work: Any) -> None:
        """Run the auditor's `work` until it succeeds."""
        done = asyncio.Event()
        await self._auditor_work.put((work, done))  # type: ignore[arg-type]
        await done.wait()

    async def _audit(self, _: Application, client: Client) -> None:
        while True:
            work, done = await self._auditor_work.get()  # type: ignore[misc]
            try:
                await work(client)
            except BaseException:
                self._auditor_work.put_nowait((work, done))  # type: ignore[arg-type]
                raise
            done.set()

    async def _prepare(self, client: Client) -> None:
        for scenario in self.scenarios:
            await scenario.prepare(client)

    async def _check(self, client: Client) -> None:
        for scenario in self.scenarios:
            await scenario.check(client)

    async def _collect(self) -> None:
        while True:
            await self.world.clock.sleep(COLLECT_S)
            gc.collect()


def run(options: RunOptions, *, trace_file: TextIO | None = None, log_file: TextIO | None = None) -> RunOutcome:
    """Run with these options."""
    if options.plant:
        _plant(options.plant)
    return SimulationRun(options, trace_file=trace_file).run(log_file=log_file)


@functools.cache  # planting a bug twice would be another bug
def _plant(where: str) -> None:
    module, _, name = where.partition(":")
    getattr(importlib.import_module(module), name)()
