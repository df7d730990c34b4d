"""A breadth-first search through all events of a world; each state is checked once."""

from collections import deque
from collections.abc import Iterator

from ortoo.enode.replication.protocol.events import LeaderProposed
from ortoo.enode.replication.protocol.replica import ReplicationLimits
from ortoo.enode.replication.protocol.rules import Rules
from tests.simulation.replicas.walk import Walk
from tests.simulation.replicas.world import World


def successors(world: World, *, epochs_max: int, messages_max: int) -> Iterator[World]:
    """The worlds after one step: a message arrives, a disk works, a replica is proposed, crashes, starts, sends."""
    for index in range(len(world.network)):
        if world.network[index] not in world.network[:index]:
            after = world.copy()
            after.deliver(index)
            yield after
    for number, machine in world.machines.items():
        if machine.member is None:
            after = world.copy()
            after.start(number)
            yield after
            continue
        if machine.work:
            after = world.copy()
            after.disk_works(number)
            yield after
        if machine.member.may_append() and world.messages_sent < messages_max:
            after = world.copy()
            after.send(number)
            yield after
        for epoch in range(machine.member.hard_state.epoch, epochs_max + 1):
            if epoch:
                after = world.copy()
                after.feed(number, LeaderProposed(epoch, machine.id))
                yield after
        if world.wipes < 1:
            after = world.copy()
            after.power_cut(number, lambda: False)
            after.wipes += 1
            yield after


def first_world(rules: Rules) -> World:
    """Three replicas with empty disks and no leases, so that time need not pass."""
    return World.started(3, 0, rules, ReplicationLimits(lease_s=0.0, window_bytes=4))


def breadth_first(first: World, *, states_max: int, epochs_max: int, messages_max: int) -> int:
    """Visit `states_max` states, the nearest first; returns their number. Errors: Violation, AssertionError."""
    seen, border = {first.key()}, deque([first])
    while border and len(seen) < states_max:
        for after in successors(border.popleft(), epochs_max=epochs_max, messages_max=messages_max):
            if (key := after.key()) not in seen:
                seen.add(key)
                border.append(after)
    return len(seen)


def around(walk: Walk, *, states_max: int) -> int:
    """Walk, then visit all next states: a walk goes deep, and this leaves nothing out."""
    walk.run()
    world = walk.world
    return breadth_first(
        world,
        states_max=states_max,
        epochs_max=world.epochs_proposed + 1,
        messages_max=world.messages_sent + 1,
    )
