"""Which queue locks a client believes to hold: pure.

The server keeps a lock for 60 s, the client renews it every 20 s and trusts it for 30 s, so a client that the server
cannot hear stops long before somebody else begins.
"""

from collections.abc import Iterable

from ortoo.client.core.place import Queue

TRUST_S = 30.0


class LockTrust:
    """The locks of one member of one group."""

    def __init__(self, trust_s: float = TRUST_S) -> None:
        """Trust a lock for so long after it was asked for."""
        self._trust_s = trust_s
        self._held: dict[Queue, tuple[int, float]] = {}

    def granted(self, queue: Queue, generation: int, asked_at_s: float) -> None:
        """The server granted it; trust begins when it was asked, because the answer may have taken long."""
        self._held[queue] = (generation, asked_at_s)

    def lost(self, queues: Iterable[Queue]) -> None:
        """These are not held, or not any more."""
        for queue in queues:
            self._held.pop(queue, None)

    def is_trusted(self, queue: Queue, now_s: float) -> bool:
        """Whether its messages may be processed now."""
        held = self._held.get(queue)
        return held is not None and now_s - held[1] <= self._trust_s

    def generation(self, queue: Queue) -> int:
        """The fencing generation of a lock; 0 = not held."""
        return self._held.get(queue, (0, 0.0))[0]

    @property
    def queues(self) -> list[Queue]:
        """All that were granted and not lost, sorted."""
        return sorted(self._held)
