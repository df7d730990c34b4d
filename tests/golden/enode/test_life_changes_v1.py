"""The bytes of changes about nacked messages, modes, ids and sinks match docs/formats/log.md, permanently."""

import pytest

from ortoo.enode.changes.groups import GroupMode, ModeSet, RetryCopiesStored, RetryMarksDropped
from ortoo.enode.changes.kinds import IdsRemembered, SinkCommitted, StateChange, decode_changes, encode_changes

GOLDEN: list[tuple[StateChange, str]] = [
    (
        RetryCopiesStored(0x11, "grüße", 3, ((5, 0), (7, 1))),
        "2529000000110000000000000003000000020000000500000000000000000700000000000000016772c3bcc39f65",
    ),
    (
        RetryMarksDropped(0x11, "g", (0, 3)),
        "2615000000110000000000000002000000000000000300000067",
    ),
    (
        ModeSet(0x11, "g", GroupMode.POP_IN_ORDER),
        "270a00000011000000000000000367",
    ),
    (
        IdsRemembered(0x11, 3, 7, True, 1_700_000_000_000, 1_700_000_600_000, (b"a" * 16, b"b" * 16)),
        "28490000001100000000000000030000000700000000000000010068e5cf8b010000c08feecf8b0100000200000061616161"
        "61616161616161616161616162626262626262626262626262626262",
    ),
    (
        SinkCommitted(0x11, "%SINK%a", 1_700_000_000_000, "grüße", "q"),
        "882300000011000000000000000068e5cf8b010000070007002553494e4b25616772c3bcc39f6571",
    ),
]


@pytest.mark.parametrize(("change", "expected"), GOLDEN)
def test_the_bytes_of_a_change_stay_what_they_are(change: StateChange, expected: str) -> None:
    """The encoding never changes, and decodes to the same change."""
    assert change.encoded().hex() == expected
    assert list(decode_changes(encode_changes([change.encoded()]))) == [change]
