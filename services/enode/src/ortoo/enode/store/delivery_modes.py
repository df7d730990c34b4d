"""The delivery mode of a group for a topic: set by the first use, checked at later ones, changed by an operator."""

import contextlib
from collections.abc import Iterable, Iterator

from ortoo.common.errors import OrtooError
from ortoo.enode.changes.groups import GroupMode, ModeSet
from ortoo.enode.changes.kinds import StateChange
from ortoo.enode.state.tables.groups import check_mode
from ortoo.enode.store.engine import Engine

RETRY_PREFIX = "%RETRY%"
"""A group's retry topic may be consumed in both modes, because the group may consume other topics in both."""

TopicGroup = tuple[int, str]
"""(topic id, group)."""


class GroupDeliveryModes:
    """The delivery modes of groups: those in the folded state, and those on their way to the disk."""

    def __init__(self, engine: Engine) -> None:
        """Start with the modes in the log."""
        self._engine = engine
        self._in_flight: dict[TopicGroup, GroupMode] = {}
        engine.committer.on_applied.append(self._on_applied)

    def of(self, topic_id: int, group: str) -> GroupMode:
        """The mode of a group for a topic."""
        return self._in_flight.get((topic_id, group)) or self._engine.state.modes.of(topic_id, group)

    def of_group(self, group: str) -> list[tuple[int, GroupMode]]:
        """(topic id, mode) of a group where a mode is set, by topic id."""
        return self._engine.state.modes.of_group(group)

    async def use(self, topic_id: int, group: str, mode: GroupMode) -> None:
        """Set or check the mode of a group for a topic. Errors: Conflict when the group has a different mode.

        The first use is written, but not awaited, because later changes of the group follow it in the log.
        """
        self._engine.record_read(topic_id, group)
        with self.decide([(topic_id, group)], mode) as (changes, refused):
            for error in refused.values():
                raise error
            await self._engine.store_without_waiting(changes)

    @contextlib.contextmanager
    def decide(
        self, pairs: Iterable[TopicGroup], mode: GroupMode
    ) -> Iterator[tuple[list[ModeSet], dict[TopicGroup, OrtooError]]]:
        """The changes that set `mode` for (topic id, group) pairs, and the errors of pairs with a different mode.

        The caller stores the changes in the `with` block. The modes apply from now on, unless the block fails.
        """
        changes: list[ModeSet] = []
        refused: dict[TopicGroup, OrtooError] = {}
        for topic_id, group in sorted(set(pairs)):
            stored = self.of(topic_id, group)
            topic = self._engine.state.topics.get(topic_id)
            if stored is mode or topic is None or topic.name.startswith(RETRY_PREFIX):
                continue
            try:
                check_mode(stored, mode, group=group, topic=topic.name)
            except OrtooError as error:
                refused[topic_id, group] = error
            else:
                self._in_flight[topic_id, group] = mode
                changes.append(ModeSet(topic_id, group, mode))
        try:
            yield changes, refused
        except BaseException:
            for change in changes:
                self._in_flight.pop((change.topic_id, change.group), None)
            raise

    async def set(self, topic_id: int, group: str, mode: GroupMode) -> GroupMode:
        """Change a group's mode for a topic; returns the previous mode when durable. Errors: as `Engine.store`."""
        before = self.of(topic_id, group)
        await self._engine.store([ModeSet(topic_id, group, mode)])
        return before

    def _on_applied(self, change: StateChange) -> None:
        """Forget that a mode is on its way to the disk, because it is now folded."""
        if isinstance(change, ModeSet) and self._in_flight.get((change.topic_id, change.group)) is change.mode:
            del self._in_flight[change.topic_id, change.group]
