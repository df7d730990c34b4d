"""Whether a replica is in sync, so that another one may stop."""

from dataclasses import replace

from ortoo.enode.replication.in_sync import LAG_BYTES_MAX, is_in_sync, lag_bytes
from ortoo.enode.replication.protocol.identity import Configuration
from ortoo.enode.replication.protocol.log_summary import ConfigurationFrame
from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.protocol.roles import Follower, Idle
from tests.unit.enode.replication.protocol.test_replica import THREE, TWO, Run

FLUSHED = 1 << 30


def following(*, flushed: int = FLUSHED, is_matched: bool = True) -> Replica:
    """A follower with a log of which a part is on its disk."""
    replica = Run().member
    role = Follower(TWO, 1, is_matched=is_matched)
    return replace(replica, role=role, log=replace(replica.log, appended=FLUSHED, flushed=flushed))


def asked(
    replica: Replica, committed: int = FLUSHED, *, is_leading: bool = False, is_leader_silent: bool = False
) -> bool:
    """The decision about a replica whose leader announced a committed position."""
    return is_in_sync(replica, committed, is_leading=is_leading, is_leader_silent=is_leader_silent)


def test_a_follower_with_nearly_the_whole_log_is_in_sync() -> None:
    """Frames on the way to it are no lag, but a gigabyte is."""
    assert asked(following())
    assert asked(following(flushed=FLUSHED - LAG_BYTES_MAX))
    assert not asked(following(flushed=FLUSHED - LAG_BYTES_MAX - 1))
    assert not asked(following(flushed=0))
    assert lag_bytes(following(flushed=0), FLUSHED) == FLUSHED
    assert lag_bytes(following(), FLUSHED - 100) == 0


def test_a_replica_that_does_not_follow_is_not_in_sync() -> None:
    """It knows no leader, hears nothing of it, or its log may differ from the leader's."""
    assert not asked(replace(following(), role=Idle()))
    assert not asked(following(), is_leader_silent=True)
    assert not asked(following(is_matched=False))
    assert asked(replace(following(), role=Idle()), is_leading=True)


def test_a_disk_outside_the_set_is_not_in_sync() -> None:
    """A learner acknowledges nothing until it is a voter."""
    replica = following()
    others = Configuration((TWO.replica, THREE.replica))
    learning = replace(replica, log=replace(replica.log, configurations=(ConfigurationFrame(0, others),)))
    assert not asked(learning)
    assert asked(replace(learning, follows_only=True))
