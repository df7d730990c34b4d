"""The delivery mode of each group in each topic, and the check of a use against it. Pure."""

from collections.abc import Iterator
from typing import ClassVar

from ortoo.common.errors import Conflict
from ortoo.enode.changes.groups import GroupMode, ModeSet
from ortoo.enode.state.table import GroupTable

_DESCRIPTIONS = {
    GroupMode.OFFSETS: "by offsets (push sessions and pulls)",
    GroupMode.POP: "by pop",
    GroupMode.POP_IN_ORDER: "by pop, in the order of message groups",
}
_NAMES = {
    GroupMode.UNDECIDED: "any",
    GroupMode.OFFSETS: "offsets",
    GroupMode.POP: "pop",
    GroupMode.POP_IN_ORDER: "pop-in-order",
}


class ModeTable(GroupTable[GroupMode]):
    """The table of delivery modes: topic id to group to the last mode that was set (absent = undecided)."""

    def of(self, topic_id: int, group: str) -> GroupMode:
        """The mode of a group in a topic."""
        return self._topics.get(topic_id, {}).get(group, GroupMode.UNDECIDED)

    def of_group(self, group: str) -> list[tuple[int, GroupMode]]:
        """(topic id, mode) of a group, by topic id."""
        return sorted((topic_id, modes[group]) for topic_id, modes in self._topics.items() if group in modes)

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes."""
        for one in self.iterate_live():
            yield ModeSet(*one).encoded()

    def _set(self, change: ModeSet) -> None:
        modes = self._topics.setdefault(change.topic_id, {})
        if change.mode is GroupMode.UNDECIDED:
            modes.pop(change.group, None)
        else:
            modes[change.group] = change.mode

    FOLDS: ClassVar = {ModeSet: _set}


def check_mode(stored: GroupMode, requested: GroupMode, *, group: str, topic: str) -> None:
    """Refuse a use that does not match the stored mode. Errors: Conflict, with the remedy."""
    if stored in (GroupMode.UNDECIDED, requested):
        return
    raise Conflict(
        f"group {group} consumes topic {topic} {_DESCRIPTIONS[stored]}; this request consumes it "
        f"{_DESCRIPTIONS[requested]}. Both at "
        f"once would deliver messages twice or never. Use another group, or stop its consumers and change the mode: "
        f"ortoo group mode {group} {topic} --set {_NAMES[requested]} (AdminService/SetDeliveryMode)",
        field="group",
    )
