"""Decides whether a replica is in sync: whether the others could stop without waiting for it. Pure."""

from typing import Final

from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.protocol.roles import Follower

LAG_BYTES_MAX: Final = 4 << 20
"""A follower that lacks less of the committed log fetches the rest within a moment."""


def lag_bytes(replica: Replica, leader_committed: int) -> int:
    """The part of the committed log that is not on this replica's disk, as far as it knows from its leader."""
    return max(0, leader_committed - replica.log.flushed)


def is_in_sync(replica: Replica, leader_committed: int, *, is_leading: bool, is_leader_silent: bool) -> bool:
    """Whether this replica leads, or follows a leader that it hears and has nearly all of the committed log.

    A voter that is not in sync cannot help to acknowledge a message. If another voter of three stops then, every send
    waits until this one has caught up.
    """
    if is_leading:
        return True
    role = replica.role
    if not (isinstance(role, Follower) and role.is_matched) or is_leader_silent:
        return False
    is_member = replica.follows_only or replica.identity.replica in replica.log.configuration.voters
    return is_member and lag_bytes(replica, leader_committed) <= LAG_BYTES_MAX
