"""Checksums are CRC-32C for any length and alignment: a second library gives the same."""

import google_crc32c
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.records.sealed_batch import crc32c


@given(st.binary(max_size=9_000), st.integers(0, 70), st.integers(1, 40))
def test_checksums_are_those_of_another_library(data: bytes, begin: int, repeats: int) -> None:
    """From any position of a buffer, because processor instructions depend on the alignment."""
    whole = data * repeats
    assert crc32c(memoryview(whole)[begin:]) == google_crc32c.value(whole[begin:])


def test_the_checksum_of_the_catalogue_is_met() -> None:
    """The check value of CRC-32/ISCSI."""
    assert crc32c(b"123456789") == 0xE3069283
