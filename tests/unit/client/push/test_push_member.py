"""A push consumer's group membership: its credit and offsets in all orders of events."""

import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ortoo.client.offsets.offset_file import OffsetFile
from ortoo.client.offsets.store import LocalOffsets
from ortoo.client.push.consumer import Consumer, ConsumerSettings
from tests.unit.client.push.member_bench import A, B, Server


async def test_the_credit_of_a_queue_that_goes_comes_back_whatever_the_application_does_with_its_messages() -> None:
    """Its messages may be acknowledged later, in part, or never, because they belong to another member by then."""
    server = Server()
    server.assign(A, B)
    for first_offset in (0, 4, 8):
        server.deliver(A, first_offset, 4)
    server.deliver(B, 0, 4)
    in_part, never, _ = [await server.member.next_batch() for _ in range(3)]
    in_part.ack_message(1)
    assert not server.all_is_back
    server.assign(B)
    in_part.ack_message(0)
    in_part.ack()
    kept = await server.member.next_batch()
    assert (kept.queue, never.is_current, kept.is_current) == (B, False, True)
    assert not server.all_is_back
    kept.ack()
    assert server.all_is_back
    assert server.acknowledged == [(1, 4, 2)]


async def test_what_is_lent_for_a_suspended_queue_that_goes_comes_back_once() -> None:
    """The credit was returned when the queue was suspended."""
    server = Server()
    server.assign(A, B)
    server.deliver(A, 0, 4)
    handed_out = await server.member.next_batch()
    server.deliver(A, 4, 4)
    server.member.suspend([A])
    server.assign(B)
    server.member.resume([A])
    assert server.all_is_back
    handed_out.ack()
    assert server.all_is_back


async def test_what_an_earlier_session_delivered_gives_no_credit_to_the_next() -> None:
    """The next session starts with the full credit."""
    server = Server()
    server.assign(A)
    server.deliver(A, 0, 4)
    old = await server.member.next_batch()
    server.open()
    server.assign(A)
    old.ack()
    assert server.all_is_back
    assert server.acknowledged == []


async def test_the_deliveries_of_a_lost_queue_need_no_garbage_collection() -> None:
    """They may be a hundred thousand. A batch that the application still keeps is not current and holds none of them.

    When the queue comes back, the batch stays as it was.
    """
    server = Server()
    server.assign(A)
    server.deliver(A, 0, 2)
    kept = await server.member.next_batch()
    deliveries = weakref.ref(server.member._progress[A])
    gc.disable()
    try:
        server.assign(B)
        assert deliveries() is None
    finally:
        gc.enable()
    server.assign(A, B)
    server.deliver(A, 0, 2)
    kept.ack()
    server.member.report_progress()
    assert not kept.is_current
    assert not server.acknowledged


async def test_what_is_wanted_later_counts_as_later_also_when_the_clock_was_set_back() -> None:
    """The server ignores subscriptions with an older version than its own."""
    times = iter([5_000, 4_000, 4_000, 6_000])
    connection: Any = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: next(times)), zone="")
    consumer = Consumer(connection, "g", {}, ConsumerSettings(client_id="c"))
    versions = []
    for _ in range(4):
        consumer.subscribe("t")
        versions += [one.version for one in consumer._member._opening.subscriptions]
    assert versions == [5_000, 5_001, 5_002, 6_000]


async def test_a_broadcasts_file_follows_a_queue_that_begins_again(tmp_path: Path) -> None:
    """With the old topic's offset it would miss messages at the start of the new one."""
    file = OffsetFile(tmp_path / "offsets")
    broadcast = LocalOffsets(file)
    server = Server(broadcast)
    for first_offset in (100, 0):
        server.assign()
        server.assign(A)
        server.deliver(A, first_offset, 3)
        (await server.member.next_batch()).ack()
        server.member.report_progress()
        await broadcast.persist()
        assert file.read() == {A: first_offset + 3}
