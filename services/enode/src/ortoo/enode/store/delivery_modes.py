"""The delivery mode of a group for a topic: set by the first use, checked at later ones, changed by an operator."""

import contextlib
from collections.abc import Iterable, Iterator

from ortoo.common.errors import OrtooError
from ortoo.enode.changes.kinds import Change
from ortoo.enode.changes.groups import Mode, ModeSet
from ortoo.enode.state.tables.modes import check
from ortoo.enode.store.engine import Engine

RETRY_PREFIX = "%RETRY%"
"""A group's retry topic may be consumed in both modes, because the group may consume other topics in both."""

Pair = tuple[int, str]
"""(topic id, group)."""


class DeliveryModes:
    """The folded modes, and the modes on their way to the disk."""

    def __init__(self, engine: Engine) -> None:
        """Start with the modes in the log."""
        self._engine = engine
        self._coming: dict[Pair, Mode] = {}
        engine.committer.on_applied.append(self._applied)

    def of(self, topic_id: int, group: str) -> Mode:
        """The mode of a group for a topic."""
        return self._coming.get((topic_id, group)) or self._engine.state.modes.of(topic_id, group)

    def of_group(self, group: str) -> list[tuple[int, Mode]]:
        """(topic id, mode) of a group where a mode is set, by topic id."""
        return self._engine.state.modes.of_group(group)

    async def use(self, topic_id: int, group: str, wanted: Mode) -> None:
        """Set or check the mode of a group for a topic. Errors: Conflict when it has another mode.

        The first use is written, but not awaited, because later changes of the group follow it in the log.
        """
        self._engine.note_reading(topic_id, group)
        with self.decided([(topic_id, group)], wanted) as (changes, refused):
            for error in refused.values():
                raise error
            await self._engine.note(changes)

    @contextlib.contextmanager
    def decided(self, pairs: Iterable[Pair], wanted: Mode) -> Iterator[tuple[list[ModeSet], dict[Pair, OrtooError]]]:
        """The changes that set this mode for groups, and the error of each pair that has another mode.

        The modes apply from now on, unless the block that stores the changes fails.
        """
        changes: list[ModeSet] = []
        refused: dict[Pair, OrtooError] = {}
        for topic_id, group in sorted(set(pairs)):
            stored = self.of(topic_id, group)
            topic = self._engine.state.topics.get(topic_id)
            if stored is wanted or topic is None or topic.name.startswith(RETRY_PREFIX):
                continue
            try:
                check(stored, wanted, group=group, topic=topic.name)
            except OrtooError as error:
                refused[topic_id, group] = error
            else:
                self._coming[topic_id, group] = wanted
                changes.append(ModeSet(topic_id, group, wanted))
        try:
            yield changes, refused
        except BaseException:
            for change in changes:
                self._coming.pop((change.topic_id, change.group), None)
            raise

    async def set(self, topic_id: int, group: str, mode: Mode) -> Mode:
        """Change the mode of a group for a topic; returns the previous one when durable. Errors: as `Engine.store`."""
        before = self.of(topic_id, group)
        await self._engine.store([ModeSet(topic_id, group, mode)])
        return before

    def _applied(self, change: Change) -> None:
        """Forget that a mode is on its way to the disk: it is folded."""
        if isinstance(change, ModeSet) and self._coming.get((change.topic_id, change.group)) is change.mode:
            del self._coming[change.topic_id, change.group]
