"""Whether the replicas of an enode have the same log and the same state."""

from collections.abc import Sequence
from pathlib import Path

from ortoo.enode.app import RunningEnode
from ortoo.enode.replication.driver import Driver
from ortoo.testing.simulation.cluster.roles import ReplicaMachine

SEGMENT_SUFFIX = ".seg"
ALL_TABLES = (1 << 32) - 1


def differences(members: Sequence[ReplicaMachine], *, flipped: str = "") -> str:
    """Differences between replicas as text; empty when all have the same bytes and the same state.

    The disk of `flipped` has undetected wrong bits, so that its bytes are not compared.
    """
    drivers: list[tuple[ReplicaMachine, Driver]] = []
    for machine in members:
        running = machine.running
        if not machine.alive or not isinstance(running, RunningEnode) or running.process.driver is None:
            return f"{machine.name} has no log open"
        drivers.append((machine, running.process.driver))
    logs = [driver.replica.log for _, driver in drivers]
    ends = [(log.appended, log.flushed, log.committed) for log in logs]
    if len({position for end in ends for position in end}) > 1:
        return f"(appended, flushed, committed) are {ends}"
    if sum(driver.leading_epoch is not None for _, driver in drivers) != 1:
        return f"{[machine.name for machine, driver in drivers if driver.leading_epoch is not None]} lead"
    begin, end = max(log.begin for log in logs), logs[0].committed
    (first, leading), *others = sorted(drivers, key=lambda one: one[0].name == flipped)
    content = _content(first, begin, end)
    for machine, driver in others:
        place = None if machine.name == flipped else _parting(content, _content(machine, begin, end))
        if place is not None:
            return f"the logs of {first.name} and {machine.name} are not the same at {begin + place}"
        state, other = leading.log.engine.state, driver.log.engine.state
        if tables := state.differing_tables(state.digests(ALL_TABLES), other.digests(ALL_TABLES)):
            return f"the states of {first.name} and {machine.name} differ in {', '.join(tables)}"
    return ""


def _content(machine: ReplicaMachine, begin: int, end: int) -> bytes:
    """The bytes of the log files between two positions."""
    content = bytearray(end - begin)
    for path in machine.disk.files():
        if path.suffix != SEGMENT_SUFFIX or path.parent != Path("/") / machine.name:
            continue
        base = int(path.stem)
        data = machine.disk.content(path)[max(0, begin - base) : max(0, end - base)]
        at = max(0, base - begin)
        content[at : at + len(data)] = data
    return bytes(content)


def _parting(one: bytes, other: bytes) -> int | None:
    if one == other:
        return None
    return next(place for place, (left, right) in enumerate(zip(one, other, strict=True)) if left != right)
