"""Decides whether the disk hangs, without mistaking a stall of the machine for it."""

from dataclasses import dataclass

HANGING_FLUSH_S = 1.0
"""A disk whose write takes longer hangs: the enode is not ready, and the replica is not proposed as leader."""
LOOK_S = 0.6
"""The longest time that counts between two looks, a little more than the usual interval of the checks of health."""


@dataclass(slots=True)
class HangWatch:
    """Looks at the write in progress from time to time.

    During a stall of the machine the process looks at nothing, and the end of a write remains unnoticed. Therefore the
    time between two looks counts only up to LOOK_S.
    """

    _begun_s: float = 0.0
    _seen_s: float = 0.0
    _counted_s: float = 0.0

    def look(self, begun_s: float, duration_s: float) -> str:
        """The reason why the disk counts as hanging; empty while it answers.

        `begun_s` identifies the write, which has lasted `duration_s`. A duration of 0 means that there is none.
        """
        if begun_s != self._begun_s or not duration_s:
            self._begun_s, self._seen_s, self._counted_s = begun_s, 0.0, 0.0
        self._counted_s += min(duration_s - self._seen_s, LOOK_S)
        self._seen_s = duration_s
        return "the disk does not answer" if self._counted_s > HANGING_FLUSH_S else ""
