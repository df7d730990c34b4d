"""What is kept of groups, and when it goes: because a deletion is due, or because nobody has used it for long."""

from collections.abc import Callable, Sequence

from ortoo.common.errors import Conflict
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.enode import log_events
from ortoo.enode.changes.all import Change
from ortoo.enode.changes.groups import GroupDeclared, GroupGone, GroupSeen, GroupsEnded
from ortoo.enode.state.tables.pops import REPLAY_PREFIX
from ortoo.enode.store.retention import Ageing
from ortoo.enode.store.store import Store
from ortoo.v1 import namesrv_pb2

LOOK_INTERVAL_S = 60.0
SEEN_STEP_MS = 3_600_000
"""How much older than the truth the log may be about when a group was used; a share of the retention, if less."""
CHANGES_MAX = 512
"""How many changes are stored together."""
NAMES_LOGGED_MAX = 20
Pair = tuple[int, str]
"""(topic id, group)."""
_log = get_logger("groups")


class GroupLives:
    """Drops offsets, locks and modes of groups, by what the log says alone: a replay says the same.

    That a directory does not know a group ends nothing: it may be another one, or an older one. A deletion that is due
    does, by its version, where the group was not used after it was deleted. So does silence, where nobody has ever
    declared the group, as far as this enode was told.
    """

    def __init__(self, store: Store, clock: Clock, *, retention_ms: int, following: Callable[[], bool]) -> None:
        """`retention_ms` 0 = silence ends nothing. `following` says whether the directory is heard now."""
        self._store = store
        self._engine = store.engine
        self._groups = store.engine.state.groups
        self._clock = clock
        self._ageing = Ageing()
        self.retention_ms = retention_ms
        self._following = following
        self.dropped = {"deleted": 0, "silent": 0}
        """Why, and of how many groups in a topic, everything was dropped since the start."""

    async def apply(self, news: namesrv_pb2.WatchRoutesResponse) -> None:
        """Take over what the name server says of groups."""
        declared = {group.name for group in news.groups if not group.by_use} - self._groups.declared
        await self._store_parts([GroupDeclared(True, name) for name in sorted(declared)])
        ended = self._groups.ended(news.directory_id)
        if ended is None:
            ended = 0
            await self._engine.store([GroupsEnded(0, news.directory_id)])
        due = sorted((one for one in news.due_groups if one.version > ended), key=lambda one: one.version)
        if not due:
            return
        deleted_at_ms = {one.name: one.deleted_at_ms for one in due}
        pairs = [(topic_id, group) for topic_id, group, _ in self._groups.entries() if group in deleted_at_ms]

        def may_go(topic_id: int, group: str) -> bool:
            return self._is_unused(topic_id, group, deleted_at_ms[group])

        await self._drop(pairs, "deleted", may_go)
        kept = sorted({group for topic_id, group in pairs if self._groups.seen_at_ms(topic_id, group) is not None})
        if kept:
            _log.emit(log_events.DELETED_GROUP_IN_USE, groups=kept[:NAMES_LOGGED_MAX], count=len(kept))
        again = {group.name for group in news.groups}
        over = [GroupDeclared(False, one.name) for one in due if one.name not in again]
        await self._store_parts([*over, GroupsEnded(due[-1].version, news.directory_id)])

    async def look(self) -> None:
        """Write down who is used, and drop what nobody declared and nobody has used for long."""
        now_ms, step_ms = self._clock.now_ms(), min(SEEN_STEP_MS, max(1, self.retention_ms // 8))
        aged_ms = self._ageing.now_ms(now_ms, self._clock.monotonic_s())
        in_use, self._engine.read = self._engine.read | self._store.locks.held(), set()
        self._engine.accepted.clear()
        # What was kept before this was written down counts as used when it is first looked at.
        seen = [
            GroupSeen(topic_id, group, now_ms)
            for topic_id, group, at_ms in self._groups.entries()
            if not at_ms or ((topic_id, group) in in_use and at_ms + step_ms <= now_ms)
        ]
        await self._store_parts(seen)
        if self.retention_ms and self._following():
            before_ms = aged_ms - self.retention_ms
            pairs = [(topic_id, group) for topic_id, group, at_ms in self._groups.entries() if at_ms < before_ms]

            def may_go(topic_id: int, group: str) -> bool:
                is_silent = group not in self._groups.declared and not group.startswith(REPLAY_PREFIX)
                return is_silent and self._is_unused(topic_id, group, before_ms)

            await self._drop(pairs, "silent", may_go)

    def _is_unused(self, topic_id: int, group: str, since_ms: int) -> bool:
        """Whether it is known that a group has not used a topic since then, nor is about to, and something is kept."""
        at_ms = self._groups.seen_at_ms(topic_id, group) or 0
        return 0 < at_ms < since_ms and (topic_id, group) not in self._engine.accepted

    async def _drop(self, pairs: Sequence[Pair], why: str, may_go: Callable[[int, str], bool]) -> None:
        """Drop what may go and holds no lock. Errors: Conflict when some of it is used just then."""
        if not pairs:
            return
        self._engine.accepted.clear()
        await self._engine.appender.flush()  # what was accepted before is in the state, with its time
        held = self._store.locks.held()
        going = [pair for pair in pairs if pair not in held and may_go(*pair)]
        for start in range(0, len(going), CHANGES_MAX):
            part = going[start : start + CHANGES_MAX]

            def check(part: Sequence[Pair] = part) -> None:
                if not all(may_go(*pair) for pair in part):
                    raise Conflict("a group is used just now; it is looked at again")

            await self._engine.store([GroupGone(*pair) for pair in part], check)
            self._store.locks.table.forget(frozenset(part).__contains__)
            self.dropped[why] += len(part)
            for topic_id, group in part:
                topic = self._store.topic(topic_id)
                name = topic.name if topic is not None else f"{topic_id:#x}"
                _log.emit(log_events.GROUP_STATE_DROPPED, group=group, topic=name, reason=why)

    async def _store_parts(self, changes: Sequence[Change]) -> None:
        for start in range(0, len(changes), CHANGES_MAX):
            await self._engine.store(changes[start : start + CHANGES_MAX])
