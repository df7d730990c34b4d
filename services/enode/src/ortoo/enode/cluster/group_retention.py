"""The lifetime of groups' state: it is dropped when a deletion is due, or after a time without use."""

from collections.abc import Callable, Sequence

from ortoo.common.errors import Conflict
from ortoo.common.groups.group_topics import REPLAY_PREFIX
from ortoo.common.groups.sinks import SinkAccount, is_sink_group
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.enode import log_events
from ortoo.enode.changes.groups import GroupDeclared, GroupDeletionsDone, GroupDropped, GroupUsed
from ortoo.enode.changes.kinds import StateChange
from ortoo.enode.store.retention import RetentionClock
from ortoo.enode.store.store import Store
from ortoo.v1 import namesrv_pb2

CHECK_INTERVAL_S = 60.0
SEEN_PRECISION_MS = 3_600_000
"""How much a group's last use in the log may lag behind the real one; 1/8 of the retention if that is less."""
CHANGES_PER_WRITE_MAX = 512
"""The number of changes that are stored together."""
NAMES_LOGGED_MAX = 20
TopicGroup = tuple[int, str]
"""(topic id, group)."""
_log = get_logger("groups")


class GroupRetention:
    """Drops offsets, locks and modes of groups. Each drop is a change in the log, which a replay repeats.

    A group that is missing in a directory is kept, because the directory may be a different or an outdated one. State
    is dropped in two cases. The directory reports a deletion as due, and the group was not used after it. Or the group
    was not used for the retention time, and this enode never learned of a declaration. The account of a sink is dropped
    only after a reset, because its query may continue at any time.
    """

    def __init__(self, store: Store, clock: Clock, *, retention_ms: int, following: Callable[[], bool]) -> None:
        """`retention_ms` 0 = unused groups are kept. `following()`: whether the enode follows a name server now."""
        self._store = store
        self._engine = store.engine
        self._groups = store.engine.state.groups
        self._clock = clock
        self._retention_clock = RetentionClock()
        self.retention_ms = retention_ms
        self._is_watching = following
        self.dropped = {"deleted": 0, "silent": 0}
        """Reason to the number of groups in a topic whose state was dropped since the start."""

    async def apply(self, response: namesrv_pb2.WatchRoutesResponse) -> None:
        """Apply the declarations and due deletions in a name server's update."""
        declared = {group.name for group in response.groups if not group.auto_created} - self._groups.declared
        await self._store_parts([GroupDeclared(True, name) for name in sorted(declared)])
        deletions_done = self._groups.deletions_done(response.directory_id)
        if deletions_done is None:
            deletions_done = 0
            await self._engine.store([GroupDeletionsDone(0, response.directory_id)])
        due = sorted((one for one in response.due_groups if one.version > deletions_done), key=lambda one: one.version)
        if not due:
            return
        deleted_at_ms = {one.name: one.deleted_at_ms for one in due}
        pairs = [(topic_id, group) for topic_id, group, _ in self._groups.entries() if group in deleted_at_ms]

        def may_go(topic_id: int, group: str) -> bool:
            return self._is_unused(topic_id, group, deleted_at_ms[group])

        await self._drop(pairs, "deleted", may_go)
        kept = sorted({group for topic_id, group in pairs if self._groups.last_used_ms(topic_id, group) is not None})
        if kept:
            _log.emit(log_events.DELETED_GROUP_IN_USE, groups=kept[:NAMES_LOGGED_MAX], count=len(kept))
        redeclared = {group.name for group in response.groups}
        undeclared = [GroupDeclared(False, one.name) for one in due if one.name not in redeclared]
        await self._store_parts([*undeclared, GroupDeletionsDone(due[-1].version, response.directory_id)])

    async def check(self) -> None:
        """Record the use of groups, and drop undeclared groups that were unused for the retention time."""
        now_ms, step_ms = self._clock.now_ms(), min(SEEN_PRECISION_MS, max(1, self.retention_ms // 8))
        aged_ms = self._retention_clock.now_ms(now_ms, self._clock.monotonic_s())
        in_use, self._engine.recently_read = self._engine.recently_read | self._store.locks.groups_with_locks(), set()
        self._engine.recently_used.clear()
        # A group stored by a version that did not record uses counts as used at its first look.
        refreshed = [
            GroupUsed(topic_id, group, now_ms)
            for topic_id, group, at_ms in self._groups.entries()
            if not at_ms or ((topic_id, group) in in_use and at_ms + step_ms <= now_ms)
        ]
        await self._store_parts(refreshed)
        if self.retention_ms and self._is_watching():
            before_ms = aged_ms - self.retention_ms
            pairs = [(topic_id, group) for topic_id, group, at_ms in self._groups.entries() if at_ms < before_ms]

            def may_go(topic_id: int, group: str) -> bool:
                is_kept = group in self._groups.declared or group.startswith(REPLAY_PREFIX)
                is_silent = not is_kept and not self._is_open_sink(topic_id, group)
                return is_silent and self._is_unused(topic_id, group, before_ms)

            await self._drop(pairs, "silent", may_go)

    def _is_open_sink(self, topic_id: int, group: str) -> bool:
        """Whether a group is the account of a sink that was not reset."""
        offsets = self._engine.state.offsets.of(topic_id, group).values() if is_sink_group(group) else ()
        return any(not SinkAccount.from_offset(offset).is_reset for offset in offsets)

    def _is_unused(self, topic_id: int, group: str, since_ms: int) -> bool:
        """Whether a group has state in a topic, last used it before `since_ms`, and has no accepted change pending."""
        at_ms = self._groups.last_used_ms(topic_id, group) or 0
        return 0 < at_ms < since_ms and (topic_id, group) not in self._engine.recently_used

    async def _drop(self, pairs: Sequence[TopicGroup], reason: str, may_go: Callable[[int, str], bool]) -> None:
        """Drop groups of `pairs` that hold no lock and that `may_go` allows. Errors: Conflict (a group is in use)."""
        if not pairs:
            return
        self._engine.recently_used.clear()
        await self._engine.appender.flush()  # changes accepted before are now in the state, with their times
        held = self._store.locks.groups_with_locks()
        droppable = [pair for pair in pairs if pair not in held and may_go(*pair)]
        for start in range(0, len(droppable), CHANGES_PER_WRITE_MAX):
            part = droppable[start : start + CHANGES_PER_WRITE_MAX]

            def check(part: Sequence[TopicGroup] = part) -> None:
                if not all(may_go(*pair) for pair in part):
                    raise Conflict("the group is in use; its retention is checked again later")

            await self._engine.store([GroupDropped(*pair) for pair in part], check)
            self._store.locks.table.drop(frozenset(part).__contains__)
            self.dropped[reason] += len(part)
            for topic_id, group in part:
                topic = self._store.topic(topic_id)
                name = topic.name if topic is not None else f"{topic_id:#x}"
                _log.emit(log_events.GROUP_STATE_DROPPED, group=group, topic=name, reason=reason)

    async def _store_parts(self, changes: Sequence[StateChange]) -> None:
        for start in range(0, len(changes), CHANGES_PER_WRITE_MAX):
            await self._engine.store(changes[start : start + CHANGES_PER_WRITE_MAX])
