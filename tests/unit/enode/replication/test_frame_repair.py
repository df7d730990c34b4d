"""The replacement of a damaged frame from another copy: the frame that was committed there, or none."""

from dataclasses import dataclass
from typing import cast

import pytest

from ortoo.common.errors import DataLoss, Unavailable
from ortoo.common.records.sealed_batch import crc32c
from ortoo.enode.log.frame import FrameHeader, FrameKind, frame_bytes
from ortoo.enode.replication.frame_repair import FrameRepair
from ortoo.enode.replication.log_bytes import LogBytes
from ortoo.enode.replication.protocol.identity import Configuration, HardState, Incarnation, ReplicaId
from ortoo.enode.replication.protocol.log_summary import ConfigurationFrame, EpochHistory, EpochStart, LogSummary
from ortoo.enode.replication.protocol.replica import Replica

THREE = tuple(ReplicaId(number, f"disk-{number}") for number in (1, 2, 3))
AT = 128
"""Where the damage is, in epoch 2."""
END = AT + frame_bytes(4)


def frame(payload: bytes, *, position: int = AT, epoch: int = 2) -> bytes:
    """A whole frame."""
    header = FrameHeader(
        kind=FrameKind.STATE, position=position, leader_epoch=epoch, length=len(payload), payload_crc=crc32c(payload)
    )
    return (header.encoded() + payload).ljust(frame_bytes(len(payload)), b"\0")


RIGHT = frame(b"good")


@dataclass
class Disk:
    """The disk of this replica, as repair sees it."""

    header: FrameHeader | None = None
    written: bytes = b""

    async def find_frame(self, position: int) -> FrameHeader | None:
        """The configured frame."""
        return self.header

    async def rewrite_frame(self, position: int, content: bytes) -> None:
        """Record the frame."""
        assert position == AT
        self.written = content


def repair(disk: Disk, copies: dict[int, bytes | None], *, committed: int = END) -> FrameRepair:
    """Replica 1, which asks others; a replica with None is down, and one without bytes has no frame."""
    history = EpochHistory((EpochStart(1, 0), EpochStart(2, AT)))
    log = LogSummary(0, END, END, committed, history, (ConfigurationFrame(0, Configuration(THREE)),))
    replica = Replica.initial(Incarnation(THREE[0], 1), log, HardState(2), 0.0)

    async def ask(of: ReplicaId, position: int) -> bytes:
        content = copies[of.number]
        if content is None:
            raise Unavailable("it is away")
        if not content:
            raise DataLoss("it has no whole frame there")
        return content

    return FrameRepair(cast(LogBytes, disk), lambda: replica, ask)


@pytest.mark.parametrize(
    "wrong",
    [
        frame(b"good", epoch=1),
        frame(b"good", epoch=3),
        frame(b"good", position=0),
        frame(b"x" * 200),
        RIGHT + RIGHT,
        RIGHT[:-1],
        RIGHT[:130] + b"?" + RIGHT[131:],
        b"no frame at all",
    ],
    ids=["older epoch", "later epoch", "other place", "too long", "two", "no end", "damaged", "garbage"],
)
async def test_wrong_bytes_are_refused_and_the_next_copy_is_asked(wrong: bytes) -> None:
    """For any answer, only a whole fitting frame of that epoch and place is written."""
    disk = Disk()
    assert await repair(disk, {2: wrong, 3: RIGHT}).repair(AT, END) == END
    assert disk.written == RIGHT
    disk = Disk()
    assert await repair(disk, {2: wrong, 3: b""}).repair(AT, END) == 0
    assert not disk.written


async def test_nothing_is_called_lost_while_a_copy_is_away() -> None:
    """A frame that is not known to be committed is not taken."""
    disk = Disk()
    with pytest.raises(Unavailable, match="replica 3"):
        await repair(disk, {2: b"", 3: None}).repair(AT, END)
    assert await repair(disk, {2: RIGHT, 3: RIGHT}, committed=AT).repair(AT, END) == 0
    assert not disk.written


async def test_what_a_lost_write_left_of_an_older_leader_is_damage_too() -> None:
    """It is whole, and of this place; the committed frame is requested, and not changed."""
    stale = FrameHeader(kind=FrameKind.STATE, position=AT, leader_epoch=1, length=4)
    disk = Disk(stale)
    assert await repair(disk, {2: RIGHT, 3: RIGHT}).repair(AT, END) == END
    assert disk.written == RIGHT
    disk = Disk(stale._replace(leader_epoch=2))
    assert await repair(disk, {2: None, 3: None}).repair(AT, END) == END
    assert not disk.written
