"""Retention: which segments may go. A pure decision."""

from collections.abc import Callable, Sequence

from ortoo.enode.log.segment import Segment
from ortoo.enode.log.settings import StoreSettings


def expired_count(
    segments: Sequence[Segment],
    *,
    now_ms: int,
    log_end: int,
    checkpoint_from: int,
    settings: StoreSettings,
    is_acknowledged: Callable[[Segment], bool],
    is_size_kept: bool = True,
) -> int:
    """How many segments, counted from the oldest, are to be deleted now.

    Never the active one, and never one that ends behind `checkpoint_from`, where the checkpoint folds from that must be
    able to replace it. Segments go oldest first, so one that must stay keeps all behind it. Unless `is_size_kept`, the
    log may be larger than its size for now: what had to be stored again takes more than that.
    """
    count = 0
    for segment in segments[:-1]:
        end = segment.end
        if end is None or end > checkpoint_from:
            break
        too_old = settings.retention_age_ms and segment.last_stored_at_ms < now_ms - settings.retention_age_ms
        too_much = is_size_kept and settings.retention_bytes and log_end - segment.base > settings.retention_bytes
        if not (too_old or too_much):
            break
        if settings.retention_requires_acknowledgement and not is_acknowledged(segment):
            break
        count += 1
    return count
