"""Damaged frames of this member's log, written again from another member's copy."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ortoo.common.errors import DataLoss, OrtooError, Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.enode import log_events
from ortoo.enode.consensus.log_bytes import LogBytes
from ortoo.enode.log.copies.copying import Frame, frames_in
from ortoo.enode.log.frame import BadFrame, FrameHeader
from ortoo.enode.members.identity import MemberId
from ortoo.enode.members.member import Member

Ask = Callable[[MemberId, int], Awaitable[bytes]]
"""Asks a member for its frame at a position. Errors: DataLoss when it has not that frame either; Unavailable."""
_log = get_logger("members")


@dataclass(eq=False)
class Repair:
    """Takes from others what this disk has damaged, and only what is committed."""

    log: LogBytes
    member: Callable[[], Member]
    """What the protocol knows at the moment."""
    ask: Ask
    on_repaired: Callable[[], object] = lambda: None
    """Called after each frame that was written again."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def frame(self, position: int, most: int) -> int:
        """Have a whole frame at a position, of a log that goes on at `most` at the latest.

        Returns where it ends; 0 when no other member has it. Errors: Unavailable when somebody who may have it could
        not be asked; OSError.
        """
        async with self._turn:
            found, member = await self.log.whole_frame(position), self.member()
            if found is not None and found.end_position <= most and self._is_of_its_epoch(found):
                return found.end_position  # somebody else who met it has had it repaired meanwhile
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
                    f"the log is damaged at {position}, and who may have a copy cannot be asked: {'; '.join(reasons)}",
                    retry_after_ms=500,
                )
            return 0

    def _is_of_its_epoch(self, header: FrameHeader) -> bool:
        """Whether it is no left-over of an older leader, which a write that the disk lost was to replace."""
        return header.leader_epoch == self.member().log.history.epoch_below(header.end_position)

    def _checked(self, content: bytes, position: int, most: int) -> Frame:
        """The frame, if it is the one that is committed at that position. Errors: BadFrame."""
        frame = next(frames_in(content, position), None)
        if frame is None or len(frame.data) != len(content):
            raise BadFrame(f"{len(content)} bytes came, and no single frame")
        header, member = frame.header, self.member()
        if header.end_position > most:
            raise BadFrame(f"it would end at {header.end_position}, and the log goes on at {most}")
        if not member.rules.may_take_copy(member.log, header.leader_epoch, header.end_position):
            raise BadFrame(f"it is of epoch {header.leader_epoch}, or not committed")
        return frame
