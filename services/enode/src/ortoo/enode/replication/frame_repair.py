"""Repairs damaged frames of this replica's log from another replica's copy."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ortoo.common.errors import DataLoss, OrtooError, Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.enode import log_events
from ortoo.enode.log.copies.frame_copies import FrameCopy, frames_in
from ortoo.enode.log.frame import BadFrame, FrameHeader
from ortoo.enode.replication.log_bytes import LogBytes
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.replication.protocol.replica import Replica

AskForFrame = Callable[[ReplicaId, int], Awaitable[bytes]]
"""Requests a replica's frame at a position. Errors: Unavailable. DataLoss when it lacks that frame, too."""
_log = get_logger("replication")


@dataclass(eq=False)
class FrameRepair:
    """Repairs damaged frames of this disk with copies from other replicas. Only committed frames are repaired."""

    log: LogBytes
    replica: Callable[[], Replica]
    """Returns the current state of the protocol."""
    ask: AskForFrame
    on_repaired: Callable[[], object] = lambda: None
    """Called after each repaired frame."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def repair(self, position: int, limit: int, is_other: bool = False) -> int:
        """Ensure a whole frame at `position` that ends at or before `limit`, where the next frame begins.

        `is_other`: the frame there is whole, but does not match an index, so it may be of another log. Returns the
        frame's end, or 0 if no other replica has the frame. Errors: OSError. Unavailable when a replica that may have
        the frame did not answer.
        """
        async with self._turn:
            found, replica = await self.log.find_frame(position), self.replica()
            is_good = found is not None and found.end_position <= limit and self._is_of_its_epoch(found)
            if found is not None and is_good and not is_other:
                return found.end_position  # another caller has had it repaired meanwhile
            reasons: list[str] = []
            for voter in replica.log.configuration.voters:
                if voter == replica.identity.replica:
                    continue
                try:
                    frame = self._check_copy(await self.ask(voter, position), position, limit)
                except (BadFrame, DataLoss) as error:
                    _log.emit(log_events.DAMAGED_FRAME_COPY_MISSING, replica=voter.number, reason=str(error))
                except OrtooError as error:
                    reasons.append(f"replica {voter.number}: {error.message}")
                else:
                    await self.log.rewrite_frame(position, bytes(frame.data))
                    _log.emit(log_events.DAMAGED_FRAME_REPAIRED, position=position, replica=voter.number)
                    self.on_repaired()
                    return frame.header.end_position
            if reasons:
                raise Unavailable(
                    f"the log is damaged at {position}, and replicas that may have a copy did not answer: "
                    f"{', '.join(reasons)}",
                    retry_after_ms=500,
                )
            return 0

    def _is_of_its_epoch(self, header: FrameHeader) -> bool:
        """Whether the frame is of the epoch that this position has in the log; otherwise the frame is a left-over."""
        return header.leader_epoch == self.replica().log.history.epoch_before(header.end_position)

    def _check_copy(self, content: bytes, position: int, limit: int) -> FrameCopy:
        """The frame in `content`, if it is the committed frame at `position`. Errors: BadFrame."""
        frame = next(frames_in(content, position), None)
        if frame is None or len(frame.data) != len(content):
            raise BadFrame(f"{len(content)} bytes were received, which are not a single frame")
        header, replica = frame.header, self.replica()
        if header.end_position > limit:
            raise BadFrame(f"the copy ends at {header.end_position}, but the next frame begins at {limit}")
        if not replica.rules.may_repair_from(replica.log, header.leader_epoch, header.end_position):
            raise BadFrame(f"the copy is of epoch {header.leader_epoch}, or is not committed")
        return frame
