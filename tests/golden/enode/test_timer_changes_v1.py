"""The bytes of the changes of delayed messages match docs/formats/log.md, permanently."""

import struct

import pytest

from ortoo.enode.changes.kinds import StateChange, decode_changes, encode_changes
from ortoo.enode.changes.timers import TimerRows, TimersDone, TimersSet

TIMES = struct.pack("<2q", 1_700_000_000_000, 1_731_536_000_000)
IDS = struct.pack("<2q", 3, 9)

GOLDEN: list[tuple[StateChange, str]] = [
    (
        TimersSet(0x11, 3, 7, 8, 9, 1_699_999_999_999, 0xABCD, TIMES),
        "4045000000110000000000000003000000070000000000000008000000000000000900000000000000ff67e5cf8b010000cd"
        "ab000002000000000068e5cf8b0100000094962793010000",
    ),
    (
        TimersSet(0x11, 3, 7, 0, 0, 1_699_999_999_999, 0, TIMES, IDS),
        "4055000000110000000000000003000000070000000000000000000000000000000000000000000000ff67e5cf8b01000000"
        "00000002000000010068e5cf8b010000009496279301000003000000000000000900000000000000",
    ),
    (
        TimerRows(struct.pack("<QIqqq", 0x11, 3, 5, 7, 1_700_000_000_000)),
        "412800000001000000110000000000000003000000050000000000000007000000000000000068e5cf8b010000",
    ),
    (
        TimersDone(1, TIMES, IDS),
        "422500000001020000000068e5cf8b010000009496279301000003000000000000000900000000000000",
    ),
]


@pytest.mark.parametrize(("change", "expected"), GOLDEN)
def test_the_bytes_of_a_change_stay_what_they_are(change: StateChange, expected: str) -> None:
    """The encoding never changes, and decodes to the same change."""
    assert change.encoded().hex() == expected
    assert list(decode_changes(encode_changes([change.encoded()]))) == [change]
