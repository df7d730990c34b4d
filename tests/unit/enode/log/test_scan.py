"""Walking a segment: frames, holes, stale frames, and the end of a crashed log."""

from ortoo.common.records.sealed_batch import crc32c
from ortoo.enode.index.survey import find_log_end, survey, survey_sealed
from ortoo.enode.log.frame import PADDING, FrameFlag, FrameHeader, FrameKind, frame_bytes
from ortoo.enode.log.scan import Hole, Read, find_stale_frame, walk


def frame(position: int, payload: bytes, *, durable_below: int = 0, store_open: int = 1, flags: int = 0) -> bytes:
    """A whole messages frame."""
    header = FrameHeader(
        kind=FrameKind.MESSAGES, position=position, durable_below=durable_below, store_open=store_open,
        stored_at_ms=position, length=len(payload), payload_crc=crc32c(payload), topic_id=1, item_count=1,
        first_offset=position, flags=flags,
    )  # fmt: skip
    return header.encoded() + payload + PADDING[frame_bytes(len(payload)) - 128 - len(payload)]


def log(*frames: tuple[bytes, dict[str, int]]) -> tuple[bytearray, list[int]]:
    """Frames one after another, and where each begins."""
    data, places = bytearray(), []
    for payload, fields in frames:
        places.append(len(data))
        data += frame(len(data), payload, **fields)
    return data, places


def reader(data: bytearray) -> Read:
    """Read from memory as from a segment at position 0."""
    return lambda position, length: bytes(data[position : position + length])


def test_a_whole_log_is_walked_frame_by_frame() -> None:
    """Every frame, and one hole: the zeros behind the last."""
    data, places = log((b"a" * 300_000, {}), (b"b", {}), (b"c" * 500, {}))
    end = len(data)
    data += bytes(4096)
    found = list(walk(reader(data), 0, len(data)))
    assert [one.position for one in found if isinstance(one, FrameHeader)] == places
    assert found[-1] == Hole(end, 4096, "zeros")


def test_the_way_is_found_again_behind_damage() -> None:
    """A bad header, a zeroed page and a stale frame are holes; the frames behind are found."""
    data, places = log(*[(b"x" * 200, {})] * 6)
    data[places[1] + 20] ^= 1
    data[places[3] : places[4]] = bytes(places[4] - places[3])
    data[places[5] :] = frame(places[5], b"y" * 200, store_open=0)
    found = list(walk(reader(data), 0, len(data)))
    assert [one.position for one in found] == places
    assert [isinstance(one, Hole) for one in found] == [False, True, False, True, False, True]
    assert "stale" in found[-1].reason  # type: ignore[union-attr]


def test_a_frame_in_the_body_of_a_message_is_not_taken_for_one() -> None:
    """Bytes inside a damaged message that look like a frame are not walked into."""
    data, _ = log((b"a", {}))
    inner = frame(192 + 128, b"forged")
    data += frame(192, inner)
    data += frame(len(data), b"z")
    data[192 + 200] ^= 1
    found = list(walk(reader(data), 0, len(data), bodies_from=0))
    assert [type(one) for one in found] == [FrameHeader, Hole, FrameHeader]
    assert found[-1].position == len(data) - 192


def test_the_log_is_cut_at_the_first_bad_frame_that_was_never_durable() -> None:
    """A torn tail begins behind the highest `durable_below` of any frame."""
    data, places = log((b"1" * 100, {}), (b"2" * 100, {}), (b"3" * 100, {"durable_below": 256}), (b"4" * 100, {}))
    limit = len(data) + 1024
    data += bytes(1024)
    assert find_log_end(survey(reader(data), 0, limit), reader(data), 0, limit) == limit - 1024
    torn = bytearray(data)
    torn[places[2] + 150] ^= 1
    assert find_log_end(survey(reader(torn), 0, limit), reader(torn), 0, limit) == places[2]


def test_what_was_durable_is_damage_and_never_cut() -> None:
    """A bad frame below `durable_below` stays in place as a hole; the log continues behind it."""
    data, places = log((b"1" * 100, {}), (b"2" * 100, {}), (b"3" * 100, {}), (b"4" * 100, {"durable_below": 512}))
    end, limit = len(data), len(data) + 1024
    data += bytes(1024)
    data[places[1]] ^= 1
    found = survey(reader(data), 0, limit)
    assert find_log_end(found, reader(data), 0, limit) == end
    found.truncate(end)
    assert [(hole.position, hole.length) for hole in found.holes] == [(places[1], places[2] - places[1])]


def test_a_sealed_segment_must_reach_its_successor() -> None:
    """A lost end is a hole up to the next segment's begin."""
    data, _ = log((b"1", {}), (b"2", {"flags": FrameFlag.SEGMENT_END}))
    whole = survey_sealed(reader(data), 0, len(data), len(data))
    assert whole.is_ended
    assert not whole.holes
    short = bytearray(data[:192])
    (rest,) = survey_sealed(reader(short), 0, len(short), 384).holes
    assert (rest.position, rest.length) == (192, 192)


def test_the_first_frame_of_another_position_is_found() -> None:
    """Frames of this position, bad headers, and frames at places where none may begin are passed over."""
    own = frame(640, b"own")
    bad = bytearray(frame(0, b"bad"))
    bad[20] ^= 1
    before = own + bytes(bad) + bytes(10) + frame(0, b"between two places") + bytes(54)
    assert len(before) % 64 == 0
    assert find_stale_frame(before, 640) == -1
    before += b"ORTO" + bytes(60)
    assert find_stale_frame(before + frame(128, b"stale") + frame(192, b"later"), 640) == 640 + len(before)
    assert find_stale_frame(b"", 640) == -1


def test_a_stale_frame_is_found_in_many_bytes() -> None:
    """It may begin behind what is read at once, and its header may lie on both sides of that border."""
    for zeros in (256 << 10, (256 << 10) - 64, (1 << 20) - 192):
        data = bytes(zeros) + frame(64, b"stale")
        assert find_stale_frame(data, 1 << 20) == (1 << 20) + zeros


def test_a_header_that_the_end_cuts_is_no_stale_frame() -> None:
    """Only whole headers count."""
    assert find_stale_frame(frame(64, b"stale")[:127], 640) == -1
