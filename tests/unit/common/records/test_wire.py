"""Writing protobuf's wire format."""

import pytest

from ortoo.common.records.wire import number_field, varint


@pytest.mark.parametrize("number", [-1, -128, -129])
def test_a_number_below_0_is_never_written_as_another(number: int) -> None:
    """A fixed-width field is read as -1, and the writer must not turn that into 127."""
    with pytest.raises(ValueError, match="range"):
        varint(number)
    with pytest.raises(ValueError, match="range"):
        number_field(9, number)


def test_numbers_are_written_in_groups_of_seven_bits() -> None:
    """The lowest first, each but the last with its highest bit set."""
    written = {0: "00", 1: "01", 127: "7f", 128: "8001", 300: "ac02", (1 << 64) - 1: "ff" * 9 + "01"}
    assert {number: varint(number).hex() for number in written} == written
