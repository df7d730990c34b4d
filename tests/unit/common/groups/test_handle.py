"""Handles name only the object they were made for, and only the cluster can make them."""

import base64
import contextlib
import string
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.groups.delay_levels import delay_ms_of_level
from ortoo.common.groups.handle import DelayedBatch, Handle, HandleKind, read_handle
from ortoo.common.groups.handle_seal import KEY_SETTLE_MS, HandleKey, HandleKeys, HandleSeals

HANDLE = Handle(HandleKind.DELAYED, "enode-0", 0xFEDC_BA98_7654_3210, 3, 42, 1_700_000_000_000)
KEY = HandleKey(7, bytes(range(32)), 1_000)
OTHER = HandleKey(8, bytes(32), 5_000)


class Times:
    """The current time."""

    now_ms = 1_000_000


def seals_of(*keys: HandleKey, unsigned_until_ms: int = 0, times: Times | None = None) -> HandleSeals:
    """Seals with some keys."""
    at = times or Times()
    seals = HandleSeals(lambda: at.now_ms)
    seals.use_keys(HandleKeys(keys, unsigned_until_ms))
    return seals


SEALS, PLAIN = seals_of(KEY), HandleSeals()


def read(text: str, seals: HandleSeals | None = SEALS) -> Handle:
    """A recall handle, read."""
    return read_handle(text, HandleKind.DELAYED, "recall_handle", seals)


def test_handles_are_as_they_ever_were() -> None:
    """Handles outlive upgrades, so that their forms are pinned: the sealed one, the one of a batch, and the old one."""
    batch = DelayedBatch("enode-0", HANDLE.topic_id, 3, 40, 5)
    assert [HANDLE.encoded(SEALS), HANDLE.encoded(PLAIN), HANDLE.encoded_of_batch(batch, batch.seal(SEALS))] == [
        "AgEQMlR2mLrc_gMAAAAqAAAAAAAAAABo5c-LAQAAZW5vZGUtMAcAAABlL03yW_4nVJyrBYHM-rrW",
        "AQEQMlR2mLrc_gMAAAAqAAAAAAAAAABo5c-LAQAAZW5vZGUtMAdr9co",
        "AwEQMlR2mLrc_gMAAAAqAAAAAAAAAABo5c-LAQAAKAAAAAAAAAAFAAAAZW5vZGUtMAcAAAA58OQoKRnYLWI_Gm8I2AO_",
    ]
    assert HANDLE.encoded_of_batch(batch, b"") == HANDLE.encoded(PLAIN)


@pytest.mark.parametrize("seals", [SEALS, PLAIN])
def test_a_handle_has_one_spelling(seals: HandleSeals) -> None:
    """Any other last character is refused, also one with the same bytes in base64, and so is padding."""
    text = HANDLE.encoded(seals)
    signs = [*string.ascii_letters, *string.digits, "-", "_", "=", "=="]
    for changed in [text[:-1] + sign for sign in signs if sign != text[-1]] + [text + "="]:
        with pytest.raises(Invalid):
            read(changed, seals)


@pytest.mark.parametrize("seals", [SEALS, PLAIN])
def test_a_handle_is_read_back(seals: HandleSeals) -> None:
    """Its text has no characters that a shell or an URL would change."""
    text = HANDLE.encoded(seals)
    assert read(text, seals) == HANDLE == read(text, None)
    assert text.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize("seals", [SEALS, PLAIN])
@given(at=st.integers(0, 127), sign=st.characters(codec="utf-8"))
def test_a_changed_handle_is_refused(seals: HandleSeals, at: int, sign: str) -> None:
    """One wrong character is detected."""
    text = HANDLE.encoded(seals)
    at %= len(text)
    changed = text[:at] + sign + text[at + 1 :]
    if changed != text:
        with contextlib.suppress(Invalid, Unsupported):
            assert read(changed, seals) == HANDLE  # the last character has bits to spare


def test_nobody_without_a_key_makes_a_handle() -> None:
    """Neither another key, nor no key, nor a handle of another kind gives a valid handle."""
    for seals in (PLAIN, seals_of(replace(KEY, secret=b"x" * 32)), seals_of(OTHER)):
        with pytest.raises(Invalid, match="recall_handle"):
            read(HANDLE.encoded(seals))
    content = base64.urlsafe_b64decode(HANDLE.encoded(SEALS) + "=" * (-len(HANDLE.encoded(SEALS)) % 4))
    transaction = base64.urlsafe_b64encode(content[:1] + b"\2" + content[2:]).decode().rstrip("=")
    with pytest.raises(Invalid, match="transaction_id"):
        read_handle(transaction, HandleKind.TRANSACTION, "transaction_id", SEALS)


def test_a_handle_of_another_kind_is_refused() -> None:
    """A transaction's handle recalls nothing."""
    with pytest.raises(Invalid, match="transaction"):
        read_handle(HANDLE.encoded(SEALS), HandleKind.TRANSACTION, "transaction_id", SEALS)


def test_the_seal_of_a_batch_is_good_for_its_messages_alone() -> None:
    """A producer can make the handles of its own messages, not of others."""
    batch = DelayedBatch("enode-0", HANDLE.topic_id, 3, 40, 5)
    seal = batch.seal(SEALS)
    for number in range(40, 45):
        one = replace(HANDLE, number=number)
        assert read(one.encoded_of_batch(batch, seal)) == one
    forged = [replace(HANDLE, number=number).encoded_of_batch(batch, seal) for number in (39, 45)]
    forged += [replace(HANDLE, number=45).encoded_of_batch(replace(batch, count=6), seal)]
    forged += [HANDLE.encoded_of_batch(replace(batch, first=39, count=6), seal)]
    forged += [
        replace(HANDLE, topic_id=1).encoded_of_batch(batch, seal),
        replace(HANDLE, enode="e").encoded_of_batch(batch, seal),
    ]
    forged += [HANDLE.encoded_of_batch(batch, bytes(20))]
    for text in forged:
        with pytest.raises(Invalid, match="recall_handle"):
            read(text)


def test_keys_change_and_old_handles_stay_good() -> None:
    """A new key is used when all snodes have it; handles of an older key are valid while that key is kept."""
    times = Times()
    times.now_ms = OTHER.created_at_ms
    seals = seals_of(KEY, OTHER, times=times)
    assert HANDLE.encoded(seals) == HANDLE.encoded(SEALS)
    times.now_ms += KEY_SETTLE_MS
    assert HANDLE.encoded(seals) != HANDLE.encoded(SEALS)
    assert read(HANDLE.encoded(SEALS), seals) == HANDLE == read(HANDLE.encoded(seals), seals)
    seals.use_keys(HandleKeys((OTHER,)))
    with pytest.raises(Invalid):
        read(HANDLE.encoded(SEALS), seals)


def test_handles_from_before_an_upgrade_are_good_for_a_while() -> None:
    """Handles without a seal are accepted exactly until the name server's time."""
    times = Times()
    seals = seals_of(KEY, unsigned_until_ms=times.now_ms + 1, times=times)
    assert read(HANDLE.encoded(PLAIN), seals) == HANDLE
    times.now_ms += 1
    with pytest.raises(Invalid):
        read(HANDLE.encoded(PLAIN), seals)


def test_a_newer_version_says_what_to_do() -> None:
    """A handle of a newer version is Unsupported, not Invalid."""
    with pytest.raises(Unsupported, match="version 4"):
        read(base64.urlsafe_b64encode(b"\x04" + bytes(40)).decode().rstrip("="))
    with pytest.raises(Invalid, match="no handle of a delayed message"):
        read("nonsense")


def test_levels_are_those_of_rocketmq() -> None:
    """Level 3 is ten seconds, level 18 two hours, and more than the last is the last (E-176)."""
    assert [delay_ms_of_level(level) for level in (0, 1, 3, 18, 99)] == [0, 1_000, 10_000, 7_200_000, 7_200_000]
    with pytest.raises(Invalid):
        delay_ms_of_level(-1)
