"""The frames of the replication protocol at the end of a log."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from ortoo.enode.log.copies.protocol_frames import PROTOCOL_KINDS, decode_protocol_frame
from ortoo.enode.log.frame import BadFrame, FrameFlag
from ortoo.enode.log.scan import Hole, read_body, walk
from ortoo.enode.log.segment import Segment
from ortoo.enode.recovery.owners import check_frame_owner
from ortoo.enode.replication.protocol.log_summary import LogSummary, ProtocolFrame


@dataclass(frozen=True, slots=True)
class ProtocolFrames:
    """The readable frames of the replication protocol behind the position of the stored log summary."""

    end: int
    """Their end: the first damaged header or protocol frame, or the log's end. Frames beyond it are unknown."""
    protocol_frames: tuple[ProtocolFrame, ...]

    @classmethod
    def read_behind(
        cls, summary: LogSummary, segments: Sequence[Segment], log_mark: int, log_end: int, *, skips_damage: bool
    ) -> "ProtocolFrames":
        """Read the frames below `log_end`, with `skips_damage` also behind damaged places.

        Errors: OSError. DataLoss, also for a frame of a log with another fingerprint, unless it is skipped.
        """
        end, is_damaged = summary.appended, False
        protocol_frames: list[ProtocolFrame] = []
        for segment, following in zip_longest(segments, segments[1:]):
            if following is not None and following.base <= end:
                continue
            is_damaged = is_damaged or segment.base > end
            for one in walk(segment.read, max(end, segment.base), min(segment.limit, log_end)):
                if isinstance(one, Hole):
                    is_damaged = True
                    continue
                if one.leader_epoch == 0 and not protocol_frames and not summary.history.starts:
                    is_damaged = False  # no protocol frames yet: the log of an enode without replicas
                try:
                    if not one.is_of(log_mark) and read_body(segment.read, one) is not None:
                        if skips_damage:
                            break
                        check_frame_owner(segment.path, one.position)
                    if one.kind in PROTOCOL_KINDS and (skips_damage or not is_damaged):
                        protocol_frames.append(decode_protocol_frame(one, read_body(segment.read, one)))
                except BadFrame:
                    is_damaged = True
                if is_damaged and not skips_damage:
                    return cls(end, tuple(protocol_frames))
                end = one.end_position
                if one.flags & FrameFlag.SEGMENT_END:
                    break
        return cls(end, tuple(protocol_frames))

    def applied_to(self, summary: LogSummary, end: int) -> LogSummary:
        """The log summary with the protocol frames up to `end`, which is at most the end of these."""
        if summary.appended > end:
            return replace(summary.truncated(end), truncations=0, is_truncating=False)
        return summary.appended_with(end, tuple(one for one in self.protocol_frames if one.end <= end))
