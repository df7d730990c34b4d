"""State changes and checkpoints: encoding, and folding them back into the state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.errors import Unsupported
from ortoo.enode.changes.kinds import (
    DirectoryTopicPut,
    LocksChanged,
    OffsetRows,
    OffsetsCommitted,
    OffsetsSkipped,
    ProducerWindow,
    QueueEndSnapshot,
    StateChange,
    TopicDeleted,
    TopicPut,
    WindowBatch,
    decode_changes,
    encode_changes,
)
from ortoo.enode.log.checkpoint import CheckpointSlice, complete_checkpoints, decode_slice, split_slices
from ortoo.enode.log.frame import FrameHeader, FrameKind
from ortoo.enode.log.queue_index import SliceLocation
from ortoo.enode.state.fold import State

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
i64 = st.integers(0, 2**62)
text = st.text(max_size=20)
window_batches = st.builds(WindowBatch, u64, u32, i64, i64, u32)
changes = st.one_of(
    st.builds(TopicPut, u64, u64, u32, text),
    st.builds(DirectoryTopicPut, u64, u64, u32, text, text),
    st.builds(TopicDeleted, u64),
    st.builds(OffsetsCommitted, u64, text, u64, st.lists(st.tuples(u32, i64), max_size=4).map(tuple)),
    st.builds(OffsetRows, u64, text, st.lists(st.tuples(u32, i64, u64), max_size=4).map(tuple)),
    st.builds(ProducerWindow, u64, u32, u64, u64, i64, st.lists(window_batches, max_size=5).map(tuple)),
    st.builds(QueueEndSnapshot, u64, u32, i64, i64),
    st.builds(OffsetsSkipped, u64, u32, i64, i64),
    st.builds(LocksChanged, u64, text, text, text, text, st.lists(st.tuples(u32, u64), max_size=4).map(tuple)),
)


@given(st.lists(changes, max_size=10))
def test_every_change_survives_its_bytes(some: list[StateChange]) -> None:
    """Decoding returns the encoded changes in order."""
    assert list(decode_changes(encode_changes([one.encoded() for one in some]))) == some


def test_unknown_changes_are_refused_unless_they_may_be_skipped() -> None:
    """Unknown kinds from 128 on are skipped; smaller ones require an upgrade."""
    known = TopicDeleted(5).encoded()
    skippable = bytes([200]) + (3).to_bytes(4, "little") + b"abc"
    assert list(decode_changes(encode_changes([skippable, known]))) == [TopicDeleted(5)]
    with pytest.raises(Unsupported):
        list(decode_changes(encode_changes([bytes([100]) + bytes(4)])))
    with pytest.raises(Unsupported):
        list(decode_changes(b"\x02\x00" + bytes(4)))


def filled() -> State:
    """A state with rows in all tables."""
    state = State()
    for topic in (3, 4):
        state.apply(TopicPut(topic, 1, 4, f"t{topic}"))
        state.apply(OffsetsCommitted(topic, "g", 2, tuple((queue, queue * 10) for queue in range(4))))
        state.apply(LocksChanged(topic, "g", "c", "s", "i", ((0, 1), (1, 2))))
        state.apply(LocksChanged(topic, "g", "", "", "", ((1, 2),)))
    for position in range(20):
        state.apply_messages(
            FrameHeader(
                kind=FrameKind.MESSAGES,
                position=position * 192,
                durable_below=0,
                store_open=1,
                stored_at_ms=position,
                topic_id=3,
                queue_id=position % 4,
                first_offset=position // 4 * 2,
                item_count=2,
                producer_id=8 + position % 4,
                first_sequence=position // 4 * 2,
            )
        )
    state.apply(OffsetsSkipped(3, 1, 100, 120))
    return state


def content(state: State) -> list[bytes]:
    """The contents of a state, comparable."""
    return sorted(state.checkpoint())


def test_a_checkpoint_carries_the_whole_state() -> None:
    """Folding the slices of a checkpoint into an empty state gives the same state."""
    state = filled()
    again = State()
    parts = list(split_slices(state.checkpoint(), 200))
    assert len(parts) > 3
    assert [is_last for _, is_last in parts] == [False] * (len(parts) - 1) + [True]
    for number, (part, _) in enumerate(parts):
        one = CheckpointSlice(640, number, 0, 10, 20, part)
        assert decode_slice(one.encoded()) == one
        again.apply_all(decode_changes(part))
    assert content(again) == content(state)


def test_folding_a_stretch_again_changes_nothing() -> None:
    """The slices of a checkpoint are of different moments, so changes in between are folded twice."""
    state, again = filled(), filled()
    again.apply(OffsetsCommitted(3, "g", 2, ((0, 0), (1, 10), (2, 20), (3, 30))))
    for position in range(12, 20):
        again.apply_messages(
            FrameHeader(
                kind=FrameKind.MESSAGES,
                position=position * 192,
                durable_below=0,
                store_open=1,
                stored_at_ms=position,
                topic_id=3,
                queue_id=position % 4,
                first_offset=position // 4 * 2,
                item_count=2,
                producer_id=8 + position % 4,
                first_sequence=position // 4 * 2,
            )
        )
    assert content(again) == content(state)


def test_a_deleted_topic_takes_everything_with_it() -> None:
    """Offsets, windows and ends are deleted with their topic."""
    state = filled()
    state.apply(TopicDeleted(3))
    assert state.offsets.groups(3) == []
    assert list(state.ends.all()) == []
    assert len(state.windows) == 0
    assert [topic.topic_id for topic in state.topics.all()] == [4]


def test_only_a_whole_checkpoint_counts() -> None:
    """The newest checkpoint with all slices is used."""
    old = [SliceLocation(10, 1, 0, 0, 5), SliceLocation(20, 1, 1, 2, 5)]
    torn = [SliceLocation(30, 2, 0, 0, 25), SliceLocation(50, 2, 2, 3, 25)]
    assert complete_checkpoints([*old, *torn]) == [tuple(old)]
    assert complete_checkpoints(torn) == []
