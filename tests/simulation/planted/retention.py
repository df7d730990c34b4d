"""Planted: retention deletes too much, or the log overwrites deleted segments wrongly. Searched for with retention."""

from collections.abc import Sequence
from typing import Any

from ortoo.enode.changes.pops import PopFinished
from ortoo.enode.log import scan
from ortoo.enode.log.frame import POSITION_AT, FrameHeader, decode_header
from ortoo.enode.replication import driver
from ortoo.enode.state.tables.pops import FinishReason
from ortoo.enode.store import housekeeping, store

finding: Any = scan
"""Names that the module `scan` imported are replaced there."""


def stale_frames_accepted() -> None:
    """G12: a start accepts frames of the segment that the file was before, because it does not compare positions."""

    def decode(data: bytes, position: int) -> FrameHeader:
        written_for = int.from_bytes(data[POSITION_AT : POSITION_AT + 8], "little")
        return decode_header(data, written_for)._replace(position=position)

    finding.decode_header = decode


def retention_waits_for_no_group() -> None:
    """G2: retention deletes messages that a group has not consumed, although it has to wait for all groups."""
    housekeeping.Housekeeping._is_acknowledged = lambda self, segment: True  # type: ignore[method-assign]


def retention_waits_for_no_follower() -> None:
    """G1: the leader deletes and overwrites segments without the other replicas, which still need them."""

    async def move(self: driver.Driver, position: int) -> None:
        await self.log.engine.housekeeping.delete_below(position)

    driver.Driver._move_begin = move  # type: ignore[method-assign]


def dead_letters_not_stored() -> None:
    """G9: a message that used its last attempt is finished, and no dead letter is stored."""
    append: Any = store.Store.append

    async def finish(self: store.Store, *place: Any, consumes: Sequence[Any] = (), **options: Any) -> Any:
        if any(isinstance(one, PopFinished) and one.reason is FinishReason.PARKED for one in consumes):
            return await self.engine.store(consumes)
        return await append(self, *place, consumes=consumes, **options)

    store.Store.append = finish  # type: ignore[method-assign]
