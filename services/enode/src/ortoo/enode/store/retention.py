"""Retention: which segments may go, and by which clock. Pure decisions."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ortoo.common.logs.logger import get_logger
from ortoo.enode import log_events
from ortoo.enode.log.segment import Segment
from ortoo.enode.log.settings import StoreSettings

STEP_MS = 3_600_000
"""A clock that goes forward by so much at once was set."""
STEP_BELIEVED_S = 86_400.0
"""After so long it is believed: until then somebody may set it right."""
_log = get_logger("store")


class Ageing:
    """The time by which things are too old. A clock that is set forward makes nothing old for a day."""

    def __init__(self) -> None:
        """Believe the clock as it is when it is first asked: what happened before nobody knows."""
        self._seen: tuple[int, float] | None = None
        self._ahead_ms = 0
        """By how much it was set and is not believed yet."""
        self._believed_at_s = 0.0

    def now_ms(self, wall_ms: int, monotonic_s: float) -> int:
        """What the time is, by the wall clock and the monotonic one; to be asked every now and then."""
        was_ms, was_s = self._seen or (wall_ms, monotonic_s)
        self._seen = wall_ms, monotonic_s
        step_ms = wall_ms - was_ms - int((monotonic_s - was_s) * 1000)
        if step_ms > STEP_MS:
            _log.emit(log_events.CLOCK_STEPPED_FORWARD, step_s=step_ms // 1000)
            self._believed_at_s = monotonic_s + STEP_BELIEVED_S
        if abs(step_ms) > STEP_MS:
            self._ahead_ms = max(0, self._ahead_ms + step_ms)
        if monotonic_s >= self._believed_at_s:
            self._ahead_ms = 0
        return wall_ms - self._ahead_ms


class Expired(NamedTuple):
    """Which segments are to be deleted."""

    oldest: int
    """The number of the oldest segments that are deleted now."""
    blocked_bytes: int
    """The length of the segments behind them that have to wait for newer checkpoints."""


def expired(
    segments: Sequence[Segment],
    *,
    now_ms: int,
    log_end: int,
    checkpoint_from: int,
    settings: StoreSettings,
    is_acknowledged: Callable[[Segment], bool],
    is_size_kept: bool = True,
) -> Expired:
    """The segments that are to be deleted.

    Never the active one, and not yet one that ends behind `checkpoint_from`, where the checkpoint folds from that must
    be able to replace it. Segments go oldest first, so one that must stay keeps all behind it. Unless `is_size_kept`,
    the log may be larger than its size for now: what had to be stored again takes more than that.
    """
    count = blocked_bytes = 0
    for segment in segments[:-1]:
        end = segment.end
        if end is None:
            break
        too_old = settings.retention_age_ms and segment.last_stored_at_ms < now_ms - settings.retention_age_ms
        too_much = is_size_kept and settings.retention_bytes and log_end - segment.base > settings.retention_bytes
        if not (too_old or too_much):
            break
        if settings.retention_requires_acknowledgement and not is_acknowledged(segment):
            break
        if end > checkpoint_from:
            blocked_bytes += end - segment.base
        else:
            count += 1
    return Expired(count, blocked_bytes)
