"""Injects the planned faults, and undoes each at its end."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ortoo.common.machine.descriptors import EXHAUSTED
from ortoo.testing.disks.disk_image import CrashOutcome
from ortoo.testing.simulation.cluster.cluster import SimulatedCluster
from ortoo.testing.simulation.cluster.machine import Machine
from ortoo.testing.simulation.cluster.roles import EnodeMachine
from ortoo.verification.simulation.oracle.oracle import Oracle
from ortoo.verification.simulation.run.plan import PlannedFault
from ortoo.verification.simulation.workload.application import Application

JUMP_MS = 120_000.0
DRIFT = 0.02
SLOW_DISK = 60.0
SLOW_NETWORK = 40.0
FULL_AFTER_BYTES = 50_000
PATIENCE_S = 1.5
"""A fault that waits for packets happens after this time at the latest."""
DISK_PATIENCE_S = 6.0
"""A fault that waits for a disk happens after this time at the latest."""
SLOWEST_TURN_S = 0.04
OPEN_ERRORS = sorted(EXHAUSTED, reverse=True)
"""In a fixed order, so that each seed chooses the same error in all runs."""
DETAINING = frozenset({"pause", "slow processor", "isolate", "partition", "one way", "slow network"})
"""Faults that delay answers."""
Undo = Callable[[], object]


class FaultInjector:
    """Injects faults into a cluster."""

    def __init__(self, cluster: SimulatedCluster, applications: Sequence[Application], oracle: Oracle) -> None:
        """Inject faults into these machines, and notify the oracle."""
        self.oracle = oracle
        self.flipped = ""
        """The replica whose disk has wrong bits that all others have right. No other disk is damaged from then on."""
        self.world = cluster.world
        self.machines: Mapping[str, Machine] = {one.name: one for one in (*cluster.machines, *applications)}
        self._cluster = cluster
        self._pending: dict[int, tuple[PlannedFault, Undo]] = {}
        self._stops: list[asyncio.Task[None]] = []
        self._is_over = False

    async def run(self, faults: Sequence[PlannedFault]) -> None:
        """Inject all faults, at their times."""
        loop = self.world.loop
        begun_s = loop.time()
        for fault in faults:
            await self.world.clock.sleep(max(0.0, begun_s + fault.at_s - loop.time()))
            fault = self.resolve_target(fault)
            happen = partial(self._schedule, fault)
            if fault.at_work:
                self._enode(fault).disk.call_at_next(fault.at_work, self.world.loop, DISK_PATIENCE_S, happen)
            elif fault.packets:
                self.world.network.after_packets(fault.target, fault.packets, PATIENCE_S, happen)
            else:
                self._inject(fault)

    def resolve_target(self, fault: PlannedFault) -> PlannedFault:
        """The fault with its actual target, determined at its time."""
        return fault

    async def undo_all(self) -> None:
        """Undo all faults: every machine runs, and everything works again."""
        self._is_over = True
        for number in list(self._pending):
            self._undo(number)
        if self._stops:
            await asyncio.wait(self._stops)
        for machine in self.machines.values():
            machine.start()
        self.world.network.heal()
        self.oracle.trouble(self.world.loop.time())

    def _schedule(self, fault: PlannedFault) -> None:
        loop = self.world.loop
        loop.call_later(fault.moment_s, self._inject, fault, context=loop.outside.context)

    def _inject(self, fault: PlannedFault) -> None:
        if self._is_over:
            return
        loop = self.world.loop
        self.world.trace.add(loop.time(), "fault", fault)
        self.oracle.trouble(loop.time() + fault.lasts_s)
        self._disturb(fault)
        undo = getattr(self, "_" + fault.kind.replace(" ", "_").replace("-", "_"))(fault)
        if undo is not None:
            self._pending[fault.number] = (fault, undo)
            loop.call_later(fault.lasts_s, self._undo, fault.number, context=loop.outside.context)

    def _undo(self, number: int) -> None:
        pending = self._pending.pop(number, None)
        if pending is not None:
            fault, undo = pending
            self.world.trace.add(self.world.loop.time(), "over", fault)
            self.oracle.trouble(self.world.loop.time())
            self._disturb(fault)
            undo()

    def _disturb(self, fault: PlannedFault) -> None:
        self.oracle.disturbed(fault.target)
        self.oracle.disturbed(fault.other)
        if fault.kind in DETAINING:
            self.oracle.mark_delayed_responses()

    # Processes.

    def _kill(self, fault: PlannedFault) -> Undo:
        machine = self.machines[fault.target]
        machine.kill()
        return machine.start

    _kill_client = _kill

    def _power_cut(self, fault: PlannedFault) -> Undo:
        machine = self._enode(fault)
        machine.cut_power(CrashOutcome(torn_pages=fault.amount < 0.7, names_in_order=fault.amount < 0.9))
        return machine.start

    def _move(self, fault: PlannedFault) -> Undo:
        """The machine comes back at another address."""
        machine = self._enode(fault)
        machine.kill()
        machine.move()
        return machine.start

    def _stop(self, fault: PlannedFault) -> Undo:
        machine = self.machines[fault.target]

        async def stop() -> None:
            await machine.stop()

        self._stops.append(self.world.loop.create_task(stop(), context=self.world.loop.outside.context.copy()))
        return lambda: self._start_when_stopped(machine)

    def _pause(self, fault: PlannedFault) -> Undo:
        machine = self.machines[fault.target]
        machine.pause()
        return machine.resume

    def _slow_processor(self, fault: PlannedFault) -> Undo:
        """Each step takes time, so that other steps interleave, such as one that opens, stops or changes a part."""
        machine = self.machines[fault.target]
        machine.slow(fault.amount**2 * SLOWEST_TURN_S)
        return lambda: machine.slow(0.0)

    def _start_when_stopped(self, machine: Machine) -> None:
        async def restart() -> None:
            await machine.stop()
            machine.start()

        self._stops.append(self.world.loop.create_task(restart(), context=self.world.loop.outside.context.copy()))

    # The network.

    def _isolate(self, fault: PlannedFault) -> Undo:
        return self.world.network.isolate(fault.target)

    def _partition(self, fault: PlannedFault) -> Undo:
        return self.world.network.partition(fault.target, fault.other, both_ways=True)

    def _one_way(self, fault: PlannedFault) -> Undo:
        return self.world.network.partition(fault.target, fault.other, both_ways=False)

    def _slow_network(self, fault: PlannedFault) -> Undo:
        return self.world.network.slow(fault.target, 1.0 + fault.amount * SLOW_NETWORK)

    def _reset(self, fault: PlannedFault) -> None:
        self.world.network.reset(fault.target)

    def _break_often(self, fault: PlannedFault) -> Undo:
        return self.world.network.break_often(fault.target, 0.01 + fault.amount * 0.1)

    def _slow_reader(self, fault: PlannedFault) -> Undo:
        return self.world.network.read_slowly(fault.target, 0.1 + fault.amount * 3)

    # Clocks.

    def _clock_jump(self, fault: PlannedFault) -> Undo:
        machine, by_ms = self.machines[fault.target], (fault.amount * 2 - 1) * JUMP_MS
        machine.clock.jump(by_ms)
        self._notice_clock(machine)

        def back() -> None:
            machine.clock.jump(-by_ms)
            self._notice_clock(machine)

        return back

    def _drift(self, fault: PlannedFault) -> Undo:
        machine = self.machines[fault.target]
        machine.clock.drift((fault.amount * 2 - 1) * DRIFT)
        # The lead that the clock gains until the end of the drift, which it keeps.
        self.oracle.clock_ahead_ms = max(self.oracle.clock_ahead_ms, machine.clock.wall_error_ms + 60_000 * DRIFT)

        def steady() -> None:
            machine.clock.drift(0.0)
            self._notice_clock(machine)

        return steady

    def _notice_clock(self, machine: Machine) -> None:
        self.oracle.clock_ahead_ms = max(self.oracle.clock_ahead_ms, machine.clock.wall_error_ms)

    # Disks.

    def _slow_disk(self, fault: PlannedFault) -> Undo:
        latency = self._enode(fault).disk.latency
        latency.factor = 1.0 + fault.amount * SLOW_DISK

        def quick() -> None:
            latency.factor = 1.0

        return quick

    def _hanging_disk(self, fault: PlannedFault) -> Undo:
        """The disk completes no operation for a while; then it completes all of them."""
        latency = self._enode(fault).disk.latency
        latency.is_hanging = True

        def answers() -> None:
            latency.is_hanging = False

        return answers

    def _sync_fails(self, fault: PlannedFault) -> Undo:
        return self._failing(fault, lambda machine: machine.disk.current.fail_sync())

    def _writes_fail(self, fault: PlannedFault) -> Undo:
        def fail(machine: EnodeMachine) -> None:
            machine.disk.current.platter.failing_writes = 1 + int(fault.amount * 3)

        return self._failing(fault, fail)

    def _names_fail(self, fault: PlannedFault) -> Undo:
        def fail(machine: EnodeMachine) -> None:
            machine.disk.current.platter.failing_names = 1 + int(fault.amount * 2)

        return self._failing(fault, fail)

    def _reads_fail(self, fault: PlannedFault) -> Undo:
        platter = self._enode(fault).disk.current.platter
        platter.failing_reads = 1 + int(fault.amount * 3)

        def well() -> None:
            platter.failing_reads = 0

        return well

    def _full_disk(self, fault: PlannedFault) -> Undo:
        machine = self._enode(fault)
        machine.disk.current.full_after(int(fault.amount * FULL_AFTER_BYTES))
        return lambda: machine.disk.current.heal()

    def _no_descriptors(self, fault: PlannedFault) -> Undo:
        """No file can be opened; open files still work."""
        disk = self._enode(fault).disk.current
        disk.open_error = OPEN_ERRORS[int(fault.amount * len(OPEN_ERRORS)) % len(OPEN_ERRORS)]

        def some() -> None:
            disk.open_error = 0

        return some

    def _bit_flip(self, fault: PlannedFault) -> None:
        machine = self._enode(fault)
        if machine.disk.flip_bit(".seg"):
            self.oracle.disk_damaged(machine.name)

    def _misdirected_write(self, fault: PlannedFault) -> None:
        machine = self._enode(fault)
        machine.disk.current.platter.misdirect_bytes = 64 + int(fault.amount * 20_000)
        self.oracle.disk_damaged(machine.name)

    def _failing(self, fault: PlannedFault, fail: Callable[[EnodeMachine], None]) -> Undo:
        """The process that saw a disk fail does not trust it again, so it is restarted."""
        machine = self._enode(fault)
        fail(machine)

        def mended() -> None:
            machine.disk.current.heal()
            platter = machine.disk.current.platter
            platter.failing_writes = platter.failing_names = platter.failing_reads = 0
            if machine.alive:
                self._start_when_stopped(machine)

        return mended

    # Neighbours.

    def _redis_flush(self, _: PlannedFault) -> None:
        self.world.redis.flush_all()

    def _redis_silent(self, _: PlannedFault) -> Undo:
        self.world.redis.stop_answering()
        return self.world.redis.resume_answering

    def _redis_fail_over(self, fault: PlannedFault) -> None:
        replica, loop = self.world.redis.snapshot(), self.world.loop
        loop.call_later(fault.amount * 3, self.world.redis.fail_over, replica, context=loop.outside.context)

    def _database_away(self, _: PlannedFault) -> Undo:
        database = self.world.database
        database.away = True

        def back() -> None:
            database.away = False

        return back

    def _database_flaky(self, fault: PlannedFault) -> Undo:
        database = self.world.database
        database.lost_before = database.lost_after = database.refused = 0.1 + fault.amount * 0.3

        def well() -> None:
            database.lost_before = database.lost_after = database.refused = 0.0

        return well

    def _enode(self, fault: PlannedFault) -> EnodeMachine:
        machine = self.machines[fault.target]
        assert isinstance(machine, EnodeMachine)
        return machine
