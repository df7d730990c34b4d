"""The decisions of name servers, with replicas that follow the protocol: nothing is lost, and a leader comes soon."""

import pytest

from ortoo.enode.replication.protocol.rules import Rules
from tests.simulation.replicas.proposers import LEADER_WITHIN_S, ProposedWalk
from tests.simulation.replicas.walk import SCENARIOS, TURNS, Scenario

QUICK = range(1, 31)
CHOSEN = ("three members", "leaders come and go", "power cuts", "five members")


@pytest.mark.parametrize("name", CHOSEN)
def test_name_servers_harm_nothing_and_find_a_leader_in_time(name: str) -> None:
    """Away, restarted, two at once, with an old database: no invariant breaks, and then there is a leader.

    Within three seconds of virtual time after all faults have ended.
    """
    for seed in QUICK:
        walk = ProposedWalk(SCENARIOS[name], seed, Rules())
        walk.run()
        walk.heal()
        walk.await_leader(LEADER_WITHIN_S)


def test_a_killed_leader_is_replaced_in_time() -> None:
    """Without other faults the next leader serves within three seconds, every time."""
    walk = ProposedWalk(Scenario(weights={**TURNS}), 1, Rules())
    walk.settle()
    taken_s = []
    for _ in range(20):
        [leader] = walk._leaders()
        walk.world.kill(leader)
        taken_s.append(walk.await_leader(LEADER_WITHIN_S))
        walk.world.start(leader)
        for _ in range(8):
            walk.report_all()
            walk._deliver_all()
            walk.world.tick(0.25)
    assert sorted(taken_s)[10] <= 2.0


@pytest.mark.parametrize("name", ["three members", "five members"])
def test_a_leader_that_is_cut_off_is_followed_in_time(name: str) -> None:
    """It reaches the name servers and no replica, and has the longest log: no election waits for its turn."""
    walk = ProposedWalk(Scenario(weights={**TURNS}, voters=SCENARIOS[name].voters), 1, Rules())
    walk.settle()
    for _ in range(20):
        [leader] = walk._leaders()
        walk.world.cut_off = frozenset({leader})
        walk.world.send(leader)
        assert walk.await_leader(LEADER_WITHIN_S, apart_from=leader) <= 2.0
        walk.world.cut_off = frozenset()
        for _ in range(8):
            walk.report_all()
            walk._deliver_all()
            walk.world.tick(0.25)
