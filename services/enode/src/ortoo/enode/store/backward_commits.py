"""Commits that take a group back: they win, and somebody should hear of it."""

from collections.abc import Mapping

from ortoo.common.process.logs import get_logger

_log = get_logger("offsets")


class BackwardCommits:
    """Counts them, and says which."""

    def __init__(self) -> None:
        """None yet."""
        self.count = 0
        """How many queues of groups went back by a commit, since the start; resets by operators are not among them."""

    def note(self, topic_id: int, group: str, stored: Mapping[int, int], offsets: Mapping[int, int]) -> None:
        """Offsets (queue id to next offset) are committed over `stored` ones."""
        for queue_id, offset in offsets.items():
            before = stored.get(queue_id, offset)
            if offset < before:
                self.count += 1
                _log.warning(
                    "a group goes back", group=group, topic_id=topic_id, queue_id=queue_id, before=before, now=offset
                )
