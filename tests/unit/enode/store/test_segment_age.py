"""Segments that end by age: messages of an enode with little traffic are deleted in time."""

from dataclasses import replace
from typing import Any

import pytest

from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.store.checkpoints import AGE_BYTES_PER_S, is_affordable
from ortoo.enode.store.retention import is_too_old
from tests.contract.one_store import SETTINGS, OneStore

AGE_MS = 3_000


def store(**settings: Any) -> OneStore:
    """A store that keeps messages for AGE_MS and has room for all of them in one segment."""
    aged = replace(SETTINGS, segment_bytes=1 << 20, retention_age_ms=AGE_MS, retention_interval_ms=100)
    return OneStore(settings=replace(aged, **settings))


async def test_messages_without_later_traffic_are_deleted_by_age() -> None:
    """Ten messages and then silence. They are read until they are old, also after a restart."""
    one = store()
    await one.open()
    for number in range(10):
        await one.append(b"%d" % number)
    await one.clock.pass_time(AGE_MS / 1000 - 0.5)
    await one.restart()
    assert len(await one.texts()) == 10
    await one.clock.pass_time(10)
    assert await one.texts() == []
    catalog = one.store.engine.catalog
    assert len(catalog.segments) == 1
    position = one.store.engine.appender.appended_position
    await one.clock.pass_time(60)
    assert one.store.engine.appender.appended_position == position
    assert (await one.append(b"next")).first_offset == 10
    await one.store.close()


async def test_old_messages_of_a_slow_queue_are_deleted_while_others_come() -> None:
    """One message a second would otherwise keep the first ones until the segment is full."""
    one = store(segment_age_max_ms=1_000)
    await one.open()
    for number in range(30):
        await one.append(b"%d" % number)
        await one.clock.pass_time(1)
    (first, _), *_ = await one.texts()
    assert 30 - first <= (AGE_MS + 1_000) / 1000 + 4
    assert len(await one.texts()) == 30 - first
    await one.store.close()


@pytest.mark.parametrize(
    ("settings", "since_ms", "expected"),
    [
        ({"retention_age_ms": 100}, 899, True),
        ({"retention_age_ms": 100}, 900, False),
        ({"retention_age_ms": 100}, None, False),
        ({"retention_age_ms": 0}, 0, False),
        ({"retention_age_ms": 0, "segment_age_max_ms": 50}, 949, True),
        ({"retention_age_ms": 10, "segment_age_max_ms": 50}, 960, False),
    ],
)
def test_a_segment_is_too_old_by_its_first_message(
    settings: dict[str, Any], since_ms: int | None, expected: bool
) -> None:
    """The age of retention is the default; without messages a segment never ends."""
    assert is_too_old(since_ms, now_ms=1_000, settings=StoreSettings(**settings)) is expected


def test_a_large_checkpoint_is_written_seldom_for_old_segments() -> None:
    """A state of 288 MB is written at most about once in an hour and a quarter."""
    assert is_affordable(elapsed_s=0.1, size_bytes=1_000)
    assert not is_affordable(elapsed_s=3_600, size_bytes=288 << 20)
    assert is_affordable(elapsed_s=(288 << 20) / AGE_BYTES_PER_S, size_bytes=288 << 20)
