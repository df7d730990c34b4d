"""What a member says of itself."""

from types import SimpleNamespace
from typing import Any

from ortoo.enode.members.driver import Tick
from ortoo.enode.members.messages import HandedOver
from ortoo.enode.members.roles import Candidate
from ortoo.enode.reigns.lives import Lives
from tests.unit.enode.consensus.test_driver import Stopped, following
from tests.unit.enode.members.test_member import LATER_S, ONE


async def test_whom_a_leader_has_handed_over_to_misses_none_while_it_stands() -> None:
    """Name servers would take it for one that cannot win, and the leader that stops for gone: they proposed again."""
    clock = Stopped()
    driver = following(clock)
    clock.at_s = LATER_S + 0.9
    driver.post(HandedOver(2, ONE.member))
    assert isinstance(driver.member.role, Candidate)
    assert not report_of(driver).is_leader_silent
    clock.at_s = LATER_S + 1.1
    driver.post(Tick())
    assert report_of(driver).is_leader_silent, "nobody leads, and it hears nobody for too long"


def report_of(driver: Any) -> Any:
    """What its process tells name servers."""
    kept = SimpleNamespace(set_id="set", member=ONE.member, incarnation=1)
    lives: Any = SimpleNamespace(
        joining=SimpleNamespace(kept=kept),
        driver=driver,
        settings=SimpleNamespace(name="e", role="", advertised_address=""),
        reports=SimpleNamespace(is_waiting=False),
        server=SimpleNamespace(cluster_address="", address="h:1"),
        member_address="h:2",
    )
    return Lives._report(lives)
