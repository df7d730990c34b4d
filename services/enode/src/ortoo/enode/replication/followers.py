"""The replicas that follow this enode's log, and what answers wait for because of them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from ortoo.common.process.logs import get_logger
from ortoo.enode.log.appender import Appender

NEAR_BYTES = 64 << 20
"""A replica that lacks more than this is copying, not following: nobody waits for it yet."""
_log = get_logger("replication")


@dataclass(slots=True, eq=False)
class Follower:
    """One replica that is connected."""

    replica_id: int
    address: str
    durable_position: int
    """What it says it has."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is more for it, or when it is to go."""
    is_over: bool = False


class Followers:
    """All of them. With `is_waited_for`, what no replica has is neither shown nor acknowledged."""

    def __init__(self, appender: Appender, *, is_waited_for: bool) -> None:
        """Begin with none."""
        self._appender = appender
        self._is_waited_for = is_waited_for
        self._followers: dict[int, Follower] = {}
        self.on_change: Callable[[], object] = lambda: None
        """Called when one comes or goes."""
        if is_waited_for:
            appender.commit_limit = appender.durable_position
        self._settle()

    def all(self) -> list[Follower]:
        """Those that are connected, by number."""
        return [self._followers[replica_id] for replica_id in sorted(self._followers)]

    def lags_bytes(self) -> dict[tuple[str, ...], int]:
        """How much of the log each replica has not written yet."""
        end = self._appender.durable_position
        return {(str(one.replica_id),): max(0, end - one.durable_position) for one in self.all()}

    def join(self, follower: Follower) -> None:
        """A replica has come; an older connection of the same one ends."""
        older = self._followers.get(follower.replica_id)
        if older is not None:
            self.leave(older)
        self._followers[follower.replica_id] = follower
        self._appender.advanced[follower.wake] = None
        _log.info("a replica follows", replica_id=follower.replica_id, position=follower.durable_position)
        self._settle()
        self.on_change()

    def has(self, follower: Follower, durable_position: int) -> None:
        """A replica has written and synced so much."""
        if not follower.is_over and follower.durable_position < durable_position:
            follower.durable_position = durable_position
            self._settle()

    def leave(self, follower: Follower) -> None:
        """A replica has gone. A second call does nothing."""
        if follower.is_over:
            return
        follower.is_over = True
        follower.wake.set()
        self._appender.advanced.pop(follower.wake, None)
        if self._followers.get(follower.replica_id) is follower:
            del self._followers[follower.replica_id]
            _log.warning("a replica has gone", replica_id=follower.replica_id, position=follower.durable_position)
            self._settle()
            self.on_change()

    def end(self) -> None:
        """Let all go, and wait for none any more: the store is about to be closed."""
        for follower in self.all():
            self.leave(follower)
        appender = self._appender
        appender.alone, appender.commit_limit = "", None
        appender.release()

    def _settle(self) -> None:
        if not self._is_waited_for:
            return
        appender = self._appender
        near = appender.durable_position - NEAR_BYTES
        positions = [one.durable_position for one in self._followers.values() if one.durable_position >= near]
        if not positions:
            appender.alone = "no replica follows this SYNC_MASTER, and nothing is acknowledged without one"
            appender.give_up_waiting(appender.alone)
            return
        appender.alone = ""
        appender.commit_limit = max(appender.commit_limit or 0, max(positions))
        appender.release()
