"""A replica that released the leases of an epoch does not lead this epoch again: the trace that shows why."""

from collections.abc import Callable

import pytest

from ortoo.enode.replication.protocol.events import LeaderProposed, TransferLeadership
from ortoo.enode.replication.protocol.messages import LeaseReleased, Message, TimeoutNow, Vote
from ortoo.enode.replication.protocol.replica import ReplicationLimits
from ortoo.enode.replication.protocol.roles import Leader
from ortoo.enode.replication.protocol.rules import Rules
from tests.simulation.replicas.world import Violation, World


class StandsAgain(Rules):
    """A replica that released the leases of an epoch leads this epoch again."""

    def may_stand(self, epoch: int, released_epoch: int) -> bool:
        return True


class Trace:
    """Three replicas, and the messages that arrive late."""

    def __init__(self, rules: Rules) -> None:
        self.world = World.started(3, 0, rules, ReplicationLimits())
        self.late: list[tuple[int, Message]] = []

    def settle(self, is_late: Callable[[int, Message], bool] = lambda to, message: False) -> None:
        """Deliver all messages except late ones, and let the disks work, until nothing is left to do."""
        world = self.world
        while True:
            busy = [number for number, machine in world.machines.items() if machine.work]
            if busy:
                world.disk_works(busy[0])
            elif world.network:
                to, message = world.network[0]
                if is_late(to, message):
                    self.late.append((to, message))
                    world.lose(0)
                else:
                    world.deliver(0)
            else:
                return

    def propose(self, epoch: int, number: int) -> None:
        """A name server proposes a leader."""
        self.world.feed(number, LeaderProposed(epoch, self.world.machines[number].id))

    def arrive(self, kind: type) -> None:
        """The late messages of this kind arrive."""
        for to, message in self.late:
            if isinstance(message, kind):
                self.world.arrive(to, message)

    def lead_twice(self) -> None:
        """Replica 1 leads epoch 1, hands over, and is proposed for epoch 1 again; then its releases arrive."""
        world = self.world
        self.propose(1, 1)
        self.settle(lambda to, message: isinstance(message, Vote) and message.voter.replica.number == 3)
        world.send(1)
        self.settle()
        world.feed(1, TransferLeadership(world.machines[2].id))
        self.settle(lambda to, message: isinstance(message, LeaseReleased | TimeoutNow))
        self.propose(1, 1)
        self.settle()
        self.arrive(Vote)
        for _ in range(4):
            self.settle()
            world.tick()
        self.settle()

    def elect_another(self) -> None:
        """The releases of the first term arrive, and replica 1 is cut off: replica 2 leads, and commits a message."""
        self.world.cut_off = frozenset({1})
        self.arrive(LeaseReleased)
        self.propose(2, 2)
        self.settle()
        if self.world.up(2).may_append():
            self.world.send(2)
            self.settle()


def test_a_late_release_ends_no_lease_of_a_second_term() -> None:
    """There is no second term in the epoch, so replica 2 may lead at once."""
    trace = Trace(Rules())
    trace.lead_twice()
    assert not isinstance(trace.world.up(1).role, Leader)
    trace.elect_another()
    assert trace.world.up(2).may_append()


def test_without_the_rule_a_replaced_leader_answers_reads() -> None:
    """Its second term has a lease that the late release of its first term ends at the followers."""
    trace = Trace(StandsAgain())
    trace.lead_twice()
    assert isinstance(trace.world.up(1).role, Leader)
    with pytest.raises(Violation, match="member 1 answers reads"):
        trace.elect_another()
