"""The bytes of the changes of transactions match docs/formats/log.md, permanently."""

import pytest

from ortoo.enode.changes.halves import HalfEnded, HalfOpen
from ortoo.enode.changes.kinds import StateChange, decode_changes, encode_changes

GOLDEN: list[tuple[StateChange, str]] = [
    (
        HalfOpen(5, 0x11, 3, 7, 2, 1_700_000_000_000, 1_700_000_006_000, 4, True, 0xABCD, "grüße"),
        "434400000005000000000000001100000000000000030000000700000000000000020000000068e5cf8b010000707fe5cf8b"
        "0100000400000001cdab0000000000006772c3bcc39f65",
    ),
    (
        HalfEnded(5, 0x11, 1, 3, 1_700_000_000_000),
        "441a0000000500000000000000110000000000000001030068e5cf8b010000",
    ),
]


@pytest.mark.parametrize(("change", "expected"), GOLDEN)
def test_the_bytes_of_a_change_stay_what_they_are(change: StateChange, expected: str) -> None:
    """The encoding never changes, and decodes to the same change."""
    assert change.encoded().hex() == expected
    assert list(decode_changes(encode_changes([change.encoded()]))) == [change]
