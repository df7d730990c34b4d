"""Retention: decides which segments are deleted, and by which clock. Pure decisions."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ortoo.common.logs.logger import get_logger
from ortoo.enode import log_events
from ortoo.enode.log.segment import Segment
from ortoo.enode.log.settings import StoreSettings

CLOCK_STEP_MS = 3_600_000
"""A larger forward step of the clock means that it was set."""
CLOCK_STEP_TRUSTED_AFTER_S = 86_400.0
"""Time after which the new clock is accepted; until then an operator may correct it."""
_log = get_logger("store")


class RetentionClock:
    """The clock of retention. A step of the wall clock forward counts for the age of segments only after a day."""

    def __init__(self) -> None:
        """The first call of `now_ms` accepts the wall clock, because its earlier steps are unknown."""
        self._last_seen: tuple[int, float] | None = None
        self._untrusted_ms = 0
        """The forward step that is not accepted yet."""
        self._trusted_at_s = 0.0

    def now_ms(self, wall_ms: int, monotonic_s: float) -> int:
        """The accepted time, from the wall clock and the monotonic clock. Callers must call this regularly."""
        was_ms, was_s = self._last_seen or (wall_ms, monotonic_s)
        self._last_seen = wall_ms, monotonic_s
        step_ms = wall_ms - was_ms - int((monotonic_s - was_s) * 1000)
        if step_ms > CLOCK_STEP_MS:
            _log.emit(log_events.CLOCK_STEPPED_FORWARD, step_s=step_ms // 1000)
            self._trusted_at_s = monotonic_s + CLOCK_STEP_TRUSTED_AFTER_S
        if abs(step_ms) > CLOCK_STEP_MS:
            self._untrusted_ms = max(0, self._untrusted_ms + step_ms)
        if monotonic_s >= self._trusted_at_s:
            self._untrusted_ms = 0
        return wall_ms - self._untrusted_ms


def is_too_old(since_ms: int | None, *, now_ms: int, settings: StoreSettings) -> bool:
    """Whether the active segment is so old that it must end; `since_ms`: time of its first message, None = no message.

    Without this rule, the messages of an enode with little traffic would be kept until they fill a segment.
    """
    age_max_ms = settings.segment_age_max_ms or settings.retention_age_ms
    return since_ms is not None and age_max_ms > 0 and since_ms < now_ms - age_max_ms


class Expired(NamedTuple):
    """The segments to delete."""

    oldest: int
    """The number of oldest segments to delete now."""
    blocked_bytes: int
    """The length of the next segments, which must wait for newer checkpoints."""
    is_blocked_by_age: bool = False
    """Whether one of these segments is too old; the others only make the log too long."""


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
    """Decide which segments are deleted.

    The active segment is never deleted. A segment that ends behind `checkpoint_from` must wait, because the state of
    its frames is not in the kept checkpoints. Segments are deleted oldest first, so a segment that must stay keeps all
    later segments. Without `is_size_kept`, the size limit is ignored, because messages rewritten from deleted segments
    may exceed it.
    """
    count, blocked_bytes, is_blocked_by_age = 0, 0, False
    for segment in segments[:-1]:
        end = segment.end
        if end is None:
            break
        too_old = 0 < settings.retention_age_ms < now_ms - segment.last_stored_at_ms
        too_much = is_size_kept and settings.retention_bytes and log_end - segment.base > settings.retention_bytes
        if not (too_old or too_much):
            break
        if settings.retention_requires_acknowledgement and not is_acknowledged(segment):
            break
        if end > checkpoint_from:
            blocked_bytes += end - segment.base
            is_blocked_by_age |= too_old
        else:
            count += 1
    return Expired(count, blocked_bytes, is_blocked_by_age)
