"""The bytes of changes about topics match docs/formats/log.md, permanently."""

import pytest

from ortoo.enode.changes.kinds import (
    DirectoryTopicPut,
    StateChange,
    TopicDeleted,
    TopicPut,
    decode_changes,
    encode_changes,
)
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.state.fold import State

DIRECTORY = "8c1e32a4-6d0f-4b57-9c11-2f6f0d9be1aa"
GOLDEN: list[tuple[StateChange, str]] = [
    (TopicPut(0x11, 7, 4, "grüße"), "011b00000011000000000000000700000000000000040000006772c3bcc39f65"),
    (TopicDeleted(0x11), "02080000001100000000000000"),
    (
        DirectoryTopicPut(0x11, 7, 4, DIRECTORY, "grüße"),
        "09410000001100000000000000070000000000000004000000240038633165333261342d366430662d346235372d396331312d32663666"
        "30643962653161616772c3bcc39f65",
    ),
]


@pytest.mark.parametrize(("change", "expected"), GOLDEN)
def test_the_bytes_of_a_change_stay_what_they_are(change: StateChange, expected: str) -> None:
    """The encoding never changes, and decodes to the same change."""
    assert change.encoded().hex() == expected
    assert list(decode_changes(encode_changes([change.encoded()]))) == [change]


def test_versions_are_compared_within_one_directory() -> None:
    """A change by another directory is applied, even with a lower version; an older version of the same one is not."""
    state = State()
    state.apply(TopicPut(5, 9, 2, "t"))
    assert state.topics.get(5) == TopicCopy(5, "t", 2, 9)
    state.apply(DirectoryTopicPut(5, 1, 3, DIRECTORY, "t"))
    assert state.topics.get(5) == TopicCopy(5, "t", 3, 1, DIRECTORY)
    state.apply(DirectoryTopicPut(5, 4, 4, DIRECTORY, "t"))
    state.apply(DirectoryTopicPut(5, 3, 3, DIRECTORY, "t"))
    assert state.topics.get(5) == TopicCopy(5, "t", 4, 4, DIRECTORY)
