"""The bytes of the changes of schedules match docs/formats/log.md, permanently."""

import pytest

from ortoo.enode.changes.kinds import StateChange, decode_changes, encode_changes
from ortoo.enode.changes.schedules import ScheduleAdvanced, ScheduleDeleted, SchedulePut

NOW_MS = 1_700_000_000_000
GOLDEN: list[tuple[StateChange, str]] = [
    (
        SchedulePut(0x11, 3, NOW_MS, NOW_MS + 60_000, 7, 0, 2, True, b"\x08\x01", "b", "0 6 * * 1-5", "Europe/Berlin"),
        "45510000001100000000000000030000000068e5cf8b0100006052e6cf8b0100000700000000000000000000000000000002"
        "010200000001000b000801" + b"b0 6 * * 1-5Europe/Berlin".hex(),
    ),
    (
        SchedulePut(0x11, 3, NOW_MS, NOW_MS + 60_000, 7, 30_000, 1, False, b"\x08\x01", "grüße", "", ""),
        "453f0000001100000000000000030000000068e5cf8b0100006052e6cf8b0100000700000000000000307500000000000001"
        "00020000000700000008016772c3bcc39f65",
    ),
    (
        ScheduleAdvanced(0x11, NOW_MS, 8, "grüße"),
        "461f00000011000000000000000068e5cf8b01000008000000000000006772c3bcc39f65",
    ),
    (ScheduleDeleted(0x11, "grüße"), "470f00000011000000000000006772c3bcc39f65"),
]


@pytest.mark.parametrize(("change", "expected"), GOLDEN)
def test_the_bytes_of_a_change_stay_what_they_are(change: StateChange, expected: str) -> None:
    """The encoding never changes, and decodes to the same change."""
    assert change.encoded().hex() == expected
    assert list(decode_changes(encode_changes([change.encoded()]))) == [change]
