"""The bytes of the changes of pops match docs/formats/log.md, permanently."""

import pytest

from ortoo.enode.changes.kinds import StateChange, decode_changes, encode_changes
from ortoo.enode.changes.pops import LeasesInvalidated, PopFinished, PopIntervals, PopLeased, PopNote, PopReturned

GOLDEN: list[tuple[StateChange, str]] = [
    (
        PopLeased(0x11, "g", 3, 0x20000000001, 1_700_000_000_000, 30_000, ((5, 4, 1), (12, 1, 3))),
        "204900000011000000000000000300000001000000000200000068e5cf8b010000307500000000000002000000"
        "050000000000000004000000010000000c00000000000000010000000300000067",
    ),
    (
        PopReturned(0x11, "g", 3, 0x20000000001, 1_700_000_000_000, 10_000, ((5, 1, 1),)),
        "213900000011000000000000000300000001000000000200000068e5cf8b010000102700000000000001000000"
        "0500000000000000010000000100000067",
    ),
    (
        PopFinished(0x11, "grüße", 3, 1, ((6, 3), (12, 1))),
        "223000000011000000000000000300000001020000000600000000000000030000000c00000000000000010000006772c3bcc39f65",
    ),
    (
        PopIntervals(0x11, "g", 3, 5, True, ((7, 2, 0, 0, 0, 0, 0), (9, 1, 2, 4, 9, 1_000, 100))),
        "236c00000011000000000000000300000005000000000000000102000000070000000000000002000000000000"
        "000000000000000000000000000000000000000000000000000009000000000000000100000002040000000900"
        "000000000000e803000000000000640000000000000067",
    ),
    (
        PopNote(0x11, "g", 3, 5, "worker-1", "boom"),
        "242500000011000000000000000300000005000000000000000100080067776f726b65722d31626f6f6d",
    ),
    (LeasesInvalidated(0x20000000001), "29080000000100000000020000"),
]


@pytest.mark.parametrize(("change", "expected"), GOLDEN)
def test_the_bytes_of_a_change_stay_what_they_are(change: StateChange, expected: str) -> None:
    """The encoding never changes, and decodes to the same change."""
    assert change.encoded().hex() == expected
    assert list(decode_changes(encode_changes([change.encoded()]))) == [change]
