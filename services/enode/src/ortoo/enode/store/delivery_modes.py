"""How groups consume topics: the first use decides, later ones must agree, an operator may change it."""

import contextlib
from collections.abc import Iterable, Iterator

from ortoo.common.errors import OrtooError
from ortoo.enode.changes.all import Change
from ortoo.enode.changes.groups import Mode, ModeSet
from ortoo.enode.state.tables.modes import check
from ortoo.enode.store.engine import Engine

RETRY_PREFIX = "%RETRY%"
"""A group's own topic may be consumed in both ways: its members may consume other topics differently."""

Pair = tuple[int, str]
"""(topic id, group)."""


class DeliveryModes:
    """The folded modes, and those on their way to the disk."""

    def __init__(self, engine: Engine) -> None:
        """Go on with the modes in the log."""
        self._engine = engine
        self._coming: dict[Pair, Mode] = {}
        engine.committer.on_applied.append(self._applied)

    def of(self, topic_id: int, group: str) -> Mode:
        """How a group consumes a topic."""
        return self._coming.get((topic_id, group)) or self._engine.state.modes.of(topic_id, group)

    def of_group(self, group: str) -> list[tuple[int, Mode]]:
        """(topic id, mode) of a group, by topic id, where it is decided."""
        return self._engine.state.modes.of_group(group)

    async def use(self, topic_id: int, group: str, wanted: Mode) -> None:
        """A group consumes a topic this way. Errors: Conflict when it does so in another way.

        The first use is written down, but not waited for: what the group does then comes after it in the log.
        """
        self._engine.note_reading(topic_id, group)
        with self.decided([(topic_id, group)], wanted) as (changes, refused):
            for error in refused.values():
                raise error
            await self._engine.note(changes)

    @contextlib.contextmanager
    def decided(self, pairs: Iterable[Pair], wanted: Mode) -> Iterator[tuple[list[ModeSet], dict[Pair, OrtooError]]]:
        """What is to be stored because groups consume topics this way, and those that may not, and why.

        It counts from now on, unless the block that is to store it fails.
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
        """Change how a group consumes a topic; returns, when it is durable, how it was. Errors: as `Engine.store`."""
        before = self.of(topic_id, group)
        await self._engine.store([ModeSet(topic_id, group, mode)])
        return before

    def _applied(self, change: Change) -> None:
        """A mode became durable."""
        if isinstance(change, ModeSet) and self._coming.get((change.topic_id, change.group)) is change.mode:
            del self._coming[change.topic_id, change.group]
