"""Opening a replica's log with damage: no frame behind it is used, and the disk must fetch these again."""

from itertools import pairwise
from pathlib import Path

import pytest

from ortoo.common.records.sealed_batch import crc32c
from ortoo.enode.changes.kinds import encode_changes
from ortoo.enode.disk.clean_stop import FILE_NAME as CLEAN_NAME
from ortoo.enode.disk.clean_stop import CleanStop
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.disk.durable_mark import DurableMark
from ortoo.enode.disk.hard_state_file import StoredHardState, read_hard_state, write_hard_state
from ortoo.enode.disk.identity import StoreIdentity, write_identity
from ortoo.enode.disk.log_summary_file import StoredLogSummary
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.checkpoint import CheckpointSlice
from ortoo.enode.log.copies.protocol_frames import configuration_payload
from ortoo.enode.log.frame import HEADER_BYTES, FrameFlag, FrameHeader, FrameKind, frame_bytes
from ortoo.enode.log.queue_index import IndexParts, encode_index
from ortoo.enode.log.segment import segment_name
from ortoo.enode.recovery.opening import last_copy_end, recover_replica
from ortoo.enode.replication.protocol.identity import Configuration, HardState, ReplicaId, Tail
from ortoo.enode.replication.protocol.log_summary import ConfigurationFrame, EpochHistory, EpochStart, LogSummary

THREE = tuple(ReplicaId(number, f"disk-{number}") for number in (1, 2, 3))
FOUR = (*THREE, ReplicaId(4, "disk-4"))
KEPT = StoredLogSummary(LogSummary(configurations=(ConfigurationFrame(0, Configuration(THREE)),)))
"""The log summary of the last start, before all frames of the log."""


class Written:
    """A log of one segment, frame by frame, and the position of each frame."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.places: list[int] = []

    def frame(self, kind: FrameKind, payload: bytes = b"", *, epoch: int, flags: int = 0) -> None:
        """Append one more frame."""
        self.places.append(len(self.content))
        header = FrameHeader(
            kind=kind,
            position=len(self.content),
            leader_epoch=epoch,
            store_open=1,
            flags=flags,
            length=len(payload),
            payload_crc=crc32c(payload),
        )
        self.content += (header.encoded() + payload).ljust(frame_bytes(len(payload)), b"\0")

    def checkpoint(self, *, epoch: int) -> None:
        """Append a checkpoint of everything before it."""
        end = len(self.content)
        self.frame(
            FrameKind.CHECKPOINT, CheckpointSlice(end, 0, 1, end, end, encode_changes(())).encoded(), epoch=epoch
        )

    def damage(self, number: int, at: int = 0) -> None:
        """Flip a bit of a frame."""
        self.content[self.places[number] + at] ^= 1

    def put(self, folder: Path, *, is_clean: bool = False) -> None:
        """Store it on a disk that has flushed all of it, in a segment that is not full."""
        end = len(self.content)
        (folder / segment_name(0)).write_bytes(bytes(self.content) + bytes(1 << 16))
        if is_clean:
            _, index = encode_index(0, end, 0, IndexParts())
            (folder / CLEAN_NAME).write_bytes(CleanStop(end, 1, 0, encode_changes(()), index).encoded())
        else:
            mark = DurableMark(RealDisk(), folder)
            mark.write(end)
            mark.close()


@pytest.fixture
def log() -> Written:
    """Two epochs, a change of the replicas, a checkpoint of all that, and one frame behind it."""
    log = Written()
    log.frame(FrameKind.EPOCH, epoch=1)
    log.frame(FrameKind.MARK, epoch=1)
    log.frame(FrameKind.EPOCH, epoch=2)
    log.frame(FrameKind.CONFIGURATION, configuration_payload(Configuration(FOUR)), epoch=2)
    log.checkpoint(epoch=2)
    log.frame(FrameKind.MARK, epoch=2)
    return log


@pytest.mark.parametrize("is_clean", [False, True])
def test_all_of_a_whole_log_is_known(log: Written, tmp_path: Path, *, is_clean: bool) -> None:
    """Its epochs and its replicas, although the checkpoint lies behind them."""
    log.put(tmp_path, is_clean=is_clean)
    found = recover_replica(SegmentFiles(RealDisk()), tmp_path, KEPT)
    assert (found.summary.tail, found.former_end) == (Tail(2, len(log.content)), 0)
    assert found.summary.configuration.voters == FOUR
    assert found.recovered.was_clean == is_clean


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize(("number", "at"), [(2, 0), (3, 0), (3, HEADER_BYTES)])
def test_a_damaged_word_of_the_replicas_is_not_passed_over(
    log: Written, tmp_path: Path, number: int, at: int, *, is_clean: bool
) -> None:
    """A vote claims only readable epochs and replicas: the log ends at the damaged frame, and the rest must be fetched.

    A log whose EPOCH frame is skipped looks older than it is, so a really older one would win.
    """
    log.damage(number, at)
    log.put(tmp_path, is_clean=is_clean)
    found = recover_replica(SegmentFiles(RealDisk()), tmp_path, KEPT)
    assert (found.summary.appended, found.former_end) == (log.places[number], len(log.content))
    assert found.summary.tail.epoch == number - 1
    assert found.summary.configuration.voters == THREE


def test_damage_in_the_segment_that_is_written_to_is_not_passed_over(log: Written, tmp_path: Path) -> None:
    """Readers have damage repaired only in full segments; elsewhere the other replicas must send it again."""
    end = log.places[4]
    whole = LogSummary(
        0, end, 0, 0, EpochHistory((EpochStart(1, 0), EpochStart(2, log.places[2]))), KEPT.summary.configurations
    )
    log.damage(1)
    log.put(tmp_path)
    found = recover_replica(SegmentFiles(RealDisk()), tmp_path, StoredLogSummary(whole))
    assert (found.summary.tail, found.former_end) == (Tail(1, log.places[1]), len(log.content))
    assert not found.recovered.holes


def test_the_only_replica_keeps_what_lies_behind_damage(log: Written, tmp_path: Path) -> None:
    """No other replica has it, so the damage is reported, and the log continues behind it."""
    write_identity(RealDisk(), tmp_path, StoreIdentity("c", "e", "set", 1, disk=THREE[0].disk))
    alone = (ConfigurationFrame(0, Configuration(THREE[:1])),)
    log.content, log.places = log.content[: log.places[3]], log.places[:3]
    log.frame(FrameKind.MARK, epoch=2)
    log.damage(1)
    log.put(tmp_path)
    found = recover_replica(SegmentFiles(RealDisk()), tmp_path, StoredLogSummary(LogSummary(configurations=alone)))
    assert (found.summary.tail, found.former_end) == (Tail(2, len(log.content)), 0)
    assert [one.position for one in found.recovered.holes] == [log.places[1]]


def test_a_replica_that_was_alone_once_is_not_alone_behind_damage(log: Written, tmp_path: Path) -> None:
    """A later frame lists other replicas, which may have what is damaged here."""
    write_identity(RealDisk(), tmp_path, StoreIdentity("c", "e", "set", 1, disk=THREE[0].disk))
    alone = (ConfigurationFrame(0, Configuration(THREE[:1])),)
    log.damage(1)
    log.put(tmp_path)
    found = recover_replica(SegmentFiles(RealDisk()), tmp_path, StoredLogSummary(LogSummary(configurations=alone)))
    assert (found.summary.appended, found.former_end) == (log.places[1], len(log.content))


@pytest.mark.parametrize("is_clean", [False, True])
def test_old_damage_of_an_enode_that_becomes_a_replica_is_passed_over(tmp_path: Path, *, is_clean: bool) -> None:
    """Before the first epoch the log has no replicas, so no other one has the damaged data."""
    log = Written()
    for _ in range(3):
        log.frame(FrameKind.MARK, epoch=0)
    log.checkpoint(epoch=0)
    log.frame(FrameKind.EPOCH, epoch=1)
    log.frame(FrameKind.CONFIGURATION, configuration_payload(Configuration(THREE)), epoch=1)
    log.damage(1)
    log.put(tmp_path, is_clean=is_clean)
    alone = LogSummary(configurations=(ConfigurationFrame(0, Configuration(THREE[:1])),))
    found = recover_replica(SegmentFiles(RealDisk()), tmp_path, StoredLogSummary(alone))
    assert (found.summary.tail, found.former_end) == (Tail(1, len(log.content)), 0)
    assert found.summary.configuration.voters == THREE


def test_what_is_owed_outlives_a_start_that_does_not_come_far(log: Written, tmp_path: Path) -> None:
    """The log behind damage is truncated only after the position that the disk once had was recorded."""
    write_hard_state(RealDisk(), tmp_path, StoredHardState(THREE[0], "set", hard_state=HardState(2)))
    log.damage(5)
    log.put(tmp_path)
    assert recover_replica(SegmentFiles(RealDisk()), tmp_path, KEPT).former_end == len(log.content)
    assert recover_replica(SegmentFiles(RealDisk()), tmp_path, KEPT).summary.appended == log.places[5]
    kept = read_hard_state(RealDisk(), tmp_path)
    assert kept is not None
    assert kept.hard_state.unsynced_tail == Tail(2, len(log.content))


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_where_a_log_will_end_is_told_before_anything_is_taken_away(
    log: Written, tmp_path: Path, number: int, *, is_clean: bool
) -> None:
    """For damage at any place; and no file is written for it."""
    log.damage(number)
    log.put(tmp_path, is_clean=is_clean)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    end = last_copy_end(RealDisk(), tmp_path, KEPT)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert recover_replica(SegmentFiles(RealDisk()), tmp_path, KEPT, is_last_copy=True).summary.appended == end
    assert end == len(log.content)


@pytest.mark.parametrize("zeros", [0, 4096])
def test_a_checkpoint_behind_the_first_segments_is_folded(tmp_path: Path, zeros: int) -> None:
    """The frames from its begin on are in later segments. A log without its first segments has its state nowhere else.

    The file of a full segment may have zeros behind its last frame, because a crash may come before it is cut.
    """
    log = Written()
    log.frame(FrameKind.EPOCH, epoch=1)
    ends = []
    for _ in range(2):
        log.frame(FrameKind.MARK, epoch=1, flags=FrameFlag.SEGMENT_END)
        ends.append(len(log.content))
        log.frame(FrameKind.MARK, epoch=1)
    as_of = len(log.content)
    part = CheckpointSlice(ends[-1], 0, 1, ends[-1], as_of, encode_changes(()))
    log.frame(FrameKind.CHECKPOINT, part.encoded(), epoch=1)
    log.put(tmp_path)
    (tmp_path / segment_name(0)).unlink()
    for base, end in pairwise([0, *ends]):
        (tmp_path / segment_name(base)).write_bytes(bytes(log.content[base:end]) + bytes(zeros))
    (tmp_path / segment_name(ends[-1])).write_bytes(bytes(log.content[ends[-1] :]) + bytes(4096))
    found = recover_replica(SegmentFiles(RealDisk()), tmp_path, KEPT)
    assert found.recovered.end_position == as_of
    assert found.summary.appended == len(log.content)
    assert not found.recovered.holes
