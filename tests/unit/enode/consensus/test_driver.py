"""The driver between the protocol and a log that takes its time."""

from types import SimpleNamespace
from typing import Any

import pytest

from ortoo.common.errors import Conflict
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.enode.consensus.driver import Driver
from ortoo.enode.disk.reign_file import KeptReign
from ortoo.enode.members.driver import AddLearner, Remove, Ship
from ortoo.enode.members.identity import Configuration
from ortoo.enode.members.log_outline import MembersFrame
from tests.unit.enode.members.test_member import FOUR, LATER_S, ONE, THREE, THREE_MEMBERS, Run


class Stopped(SystemClock):
    """A clock that stands still."""

    def monotonic_s(self) -> float:
        """No heartbeat is late by it."""
        return LATER_S


class Silent:
    """Peers that nothing reaches."""

    def send(self, *_: object) -> None:
        """Lose it."""


def whole(ship: Ship) -> list[bytes]:
    """Whatever is to be sent is in memory."""
    return [bytes(ship.limit - ship.begin)]


def leading() -> tuple[Driver, Any]:
    """A driver whose member leads three, and its log, whose work is not begun."""
    run = Run()
    run.lead()
    run.followed()
    engine = SimpleNamespace(appender=SimpleNamespace(), committer=SimpleNamespace(), housekeeping=SimpleNamespace())
    log: Any = SimpleNamespace(engine=engine, bytes=SimpleNamespace(newest=whole), commit=lambda position: None)
    clock = Stopped()
    driver = Driver(log, run.member, KeptReign(ONE.member), Silent(), Background("test"), clock)
    return driver, log


async def test_a_change_of_the_members_that_waits_for_the_log_is_the_only_one() -> None:
    """What else is appended meanwhile does not let a second one in, which would know nothing of the first."""
    driver, log = leading()
    driver.asked(AddLearner(FOUR.member))
    log.on_appended(20, ())
    with pytest.raises(Conflict, match="try again"):
        driver.asked(Remove(THREE.member))
    log.on_appended(30, (MembersFrame(20, 30, Configuration(THREE_MEMBERS.voters, (FOUR.member,))),))
    with pytest.raises(Conflict, match="not committed"):
        driver.asked(Remove(THREE.member))
