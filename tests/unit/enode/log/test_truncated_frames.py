"""The frames that a returning replica removes from its log: counted, listed, and kept in a file."""

from pathlib import Path

from ortoo.common.records.sealed_batch import crc32c
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.log.copies.truncated_frames import TruncatedFrames
from ortoo.enode.log.frame import PADDING, FrameHeader, FrameKind, frame_bytes

BEGIN = 640
PAYLOAD = b"m" * 200


def frames(*places: tuple[int, int]) -> bytes:
    """Frames of two messages each, one behind the other from BEGIN, for (topic id, first offset)."""
    content = bytearray()
    for topic_id, first_offset in places:
        header = FrameHeader(
            kind=FrameKind.MESSAGES, position=BEGIN + len(content), durable_below=0, store_open=1, stored_at_ms=1,
            length=len(PAYLOAD), payload_crc=crc32c(PAYLOAD), topic_id=topic_id, item_count=2,
            first_offset=first_offset, leader_epoch=7,
        )  # fmt: skip
        content += header.encoded() + PAYLOAD + PADDING[frame_bytes(len(PAYLOAD)) - 128 - len(PAYLOAD)]
    return bytes(content)


def test_removed_messages_are_counted_listed_and_kept(tmp_path: Path) -> None:
    """The file is named by the epoch and the position, and holds the frames byte for byte."""
    content = frames((1, 10), (2, 0), (1, 12))
    removed = TruncatedFrames.of(BEGIN, content)
    assert removed.messages == 6
    assert removed.describe_offsets([(1, "orders")]) == ["orders/0: 10 to 13", "0x2/0: 0 to 1"]
    assert removed.write_file(RealDisk(), tmp_path) == f"cut-7-{BEGIN}"
    assert (tmp_path / f"cut-7-{BEGIN}").read_bytes() == content


def test_a_frame_that_was_never_whole_is_not_counted(tmp_path: Path) -> None:
    """It was never acknowledged. The file still has its bytes."""
    content = frames((1, 10), (1, 12))[:-100]
    removed = TruncatedFrames.of(BEGIN, content)
    assert removed.messages == 2
    assert (tmp_path / removed.write_file(RealDisk(), tmp_path)).read_bytes() == content
