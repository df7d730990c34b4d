"""How each group consumes each topic: the folded modes, and who may use them. Pure."""

from collections.abc import Iterator

from ortoo.common.errors import Conflict
from ortoo.enode.changes.all import Change, TopicGone
from ortoo.enode.changes.lives import Mode, ModeSet

_WORDS = {
    Mode.OFFSETS: "by offsets (push sessions and pulls)",
    Mode.POP: "by pop",
    Mode.POP_IN_ORDER: "by pop, in the order of message groups",
}
_NAMES = {Mode.UNDECIDED: "any", Mode.OFFSETS: "offsets", Mode.POP: "pop", Mode.POP_IN_ORDER: "pop-in-order"}


class Modes:
    """(topic id, group) to mode; absent = undecided."""

    def __init__(self) -> None:
        """Nobody consumes."""
        self._modes: dict[tuple[int, str], Mode] = {}

    def of(self, topic_id: int, group: str) -> Mode:
        """How a group consumes a topic."""
        return self._modes.get((topic_id, group), Mode.UNDECIDED)

    def of_group(self, group: str) -> list[tuple[int, Mode]]:
        """(topic id, mode) of a group, by topic id."""
        return sorted((topic_id, mode) for (topic_id, name), mode in self._modes.items() if name == group)

    def apply(self, change: Change) -> None:
        """Fold one change in; the last one of a group in a topic counts."""
        if isinstance(change, ModeSet):
            if change.mode is Mode.UNDECIDED:
                self._modes.pop((change.topic_id, change.group), None)
            else:
                self._modes[change.topic_id, change.group] = change.mode
        elif isinstance(change, TopicGone):
            for key in [key for key in self._modes if key[0] == change.topic_id]:
                del self._modes[key]

    def checkpoint(self) -> Iterator[bytes]:
        """The whole as encoded changes; may be drawn while modes change, for they are then folded again."""
        for (topic_id, group), mode in list(self._modes.items()):
            yield ModeSet(topic_id, group, mode).encoded()


def check(stored: Mode, wanted: Mode, *, group: str, topic: str) -> None:
    """Refuse a use that does not fit how the group consumes the topic. Errors: Conflict, saying what to do."""
    if stored in (Mode.UNDECIDED, wanted):
        return
    raise Conflict(
        f"group {group} consumes topic {topic} {_WORDS[stored]}; this asks for it {_WORDS[wanted]}, and both at once "
        f"would deliver messages twice or never. Use another group, or stop its members and change it: "
        f"ortoo group mode {group} {topic} --set {_NAMES[wanted]} (AdminService/SetDeliveryMode)",
        field="group",
    )
