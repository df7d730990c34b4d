"""Repairs damaged frames of this replica's log from another replica's copy."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ortoo.common.errors import DataLoss, OrtooError, Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.enode import log_events
from ortoo.enode.replication.log_bytes import LogBytes
from ortoo.enode.log.copies.frame_copies import Frame, frames_in
from ortoo.enode.log.frame import BadFrame, FrameHeader
from ortoo.enode.replication.protocol.identity import MemberId
from ortoo.enode.replication.protocol.replica import Member

Ask = Callable[[MemberId, int], Awaitable[bytes]]
"""Requests a replica's frame at a position. Errors: Unavailable. DataLoss when it lacks that frame, too."""
_log = get_logger("members")


@dataclass(eq=False)
class Repair:
    """Fetches damaged frames of this disk from other replicas, and only committed ones."""

    log: LogBytes
    member: Callable[[], Member]
    """Returns the current state of the protocol."""
    ask: Ask
    on_repaired: Callable[[], object] = lambda: None
    """Called after each repaired frame."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def frame(self, position: int, most: int, is_other: bool = False) -> int:
        """Ensure a whole frame at a position; its end is at most at `most`, where the next frame begins.

        With `is_other` the frame there is whole, but does not match an index; it may be of another log.
        Returns the frame's end, or 0 if no other replica has it. Errors: OSError. Unavailable when a replica that may
        have it did not answer.
        """
        async with self._turn:
            found, member = await self.log.whole_frame(position), self.member()
            is_good = found is not None and found.end_position <= most and self._is_of_its_epoch(found)
            if found is not None and is_good and not is_other:
                return found.end_position  # another caller has had it repaired meanwhile
            reasons: list[str] = []
            for voter in member.log.members.voters:
                if voter == member.me.member:
                    continue
                try:
                    frame = self._checked(await self.ask(voter, position), position, most)
                except (BadFrame, DataLoss) as error:
                    _log.emit(log_events.DAMAGED_FRAME_COPY_MISSING, member=voter.number, reason=str(error))
                except OrtooError as error:
                    reasons.append(f"member {voter.number}: {error.message}")
                else:
                    await self.log.write_again(position, bytes(frame.data))
                    _log.emit(log_events.DAMAGED_FRAME_REPAIRED, position=position, member=voter.number)
                    self.on_repaired()
                    return frame.header.end_position
            if reasons:
                raise Unavailable(
                    f"the log is damaged at {position}, and replicas with a copy did not answer: {', '.join(reasons)}",
                    retry_after_ms=500,
                )
            return 0

    def _is_of_its_epoch(self, header: FrameHeader) -> bool:
        """Whether it is not a left-over of an older leader whose replacement the disk lost."""
        return header.leader_epoch == self.member().log.history.epoch_below(header.end_position)

    def _checked(self, content: bytes, position: int, most: int) -> Frame:
        """The frame, if it is the committed one at that position. Errors: BadFrame."""
        frame = next(frames_in(content, position), None)
        if frame is None or len(frame.data) != len(content):
            raise BadFrame(f"{len(content)} bytes were received, which are not a single frame")
        header, member = frame.header, self.member()
        if header.end_position > most:
            raise BadFrame(f"it would end at {header.end_position}, but the next frame begins at {most}")
        if not member.rules.may_take_copy(member.log, header.leader_epoch, header.end_position):
            raise BadFrame(f"it is of epoch {header.leader_epoch}, or not committed")
        return frame
