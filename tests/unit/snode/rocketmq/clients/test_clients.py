"""Clients are registered by their id while they send anything."""

import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from apache.rocketmq.v2.definition_pb2 import Publishing, Resource, Settings
from apache.rocketmq.v2.service_pb2 import TelemetryCommand
from ortoo.common.errors import Overloaded
from ortoo.common.process.memory_budget import RESIDENT_PERCENT, MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.snode.membership.group_membership import Membership
from ortoo.snode.rocketmq.clients.registration import ClientRegistration
from ortoo.snode.rocketmq.clients.table import (
    COMMANDS_MAX,
    EXPIRY_S,
    LOST_EXPIRY_S,
    SETTINGS_COPIES,
    TOPICS_MAX,
    ClientTable,
    CommandStream,
)
from ortoo.snode.rocketmq.protocol.caller import WAIT_MS_MAX, Caller
from ortoo.snode.rocketmq.send.transactions import TransactionActivity
from ortoo.snode.send.transactions import TransactionProcessor
from ortoo.verification.time.virtual_clock import VirtualClock


def test_a_client_is_gone_after_a_silence_of_120_s_and_not_before() -> None:
    """Every request counts as a sign of life, whether or not the telemetry stream is open."""
    clients = ClientTable(MemoryBudget(1 << 30).share("clients"))
    clients.touch(Caller("a"), 0.0)
    clients.touch(Caller("b"), 0.0)
    clients.touch(Caller("a"), 60.0)
    assert clients.remove_expired(EXPIRY_S) == []
    assert [client.client_id for client in clients.remove_expired(EXPIRY_S + 1)] == ["b"]
    assert [client.client_id for client in clients.remove_expired(60.0 + EXPIRY_S + 1)] == ["a"]


def test_a_client_that_lost_its_stream_is_gone_after_30_s() -> None:
    """A killed consumer's messages come to others in half a minute; heartbeats keep a client that reconnects later."""
    clients = ClientTable(MemoryBudget(1 << 30).share("clients"))
    for name in "ab":
        clients.touch(Caller(name), 0.0).has_lost_stream = True
    assert clients.remove_expired(LOST_EXPIRY_S) == []
    clients.touch(Caller("b"), LOST_EXPIRY_S)
    assert [client.client_id for client in clients.remove_expired(LOST_EXPIRY_S + 1)] == ["a"]
    assert clients.remove_expired(2 * LOST_EXPIRY_S) == []


async def test_a_stream_says_everything_in_order_and_then_ends() -> None:
    """Commands queued before the end are sent; a client that does not read is refused more."""
    stream = CommandStream()
    commands = [TelemetryCommand() for _ in range(COMMANDS_MAX)]
    for command in commands:
        stream.send(command)
    with pytest.raises(Overloaded):
        stream.send(TelemetryCommand())
    stream.end()
    assert [await stream.next() for _ in commands] == commands
    assert await stream.next() is None


async def test_what_waits_for_a_client_is_drawn_from_the_process() -> None:
    """G17: a producer that begins transactions and does not read checks costs only memory that is available."""
    budget = MemoryBudget(10_000_000)
    stream = CommandStream(budget.share("Telemetry"))
    before, large = budget.used_bytes, TelemetryCommand()
    large.recover_orphaned_transaction_command.message.body = bytes(1 << 20)
    said = 0
    with pytest.raises(Overloaded):
        while True:
            stream.send(large)
            said += 1
    assert 0 < said < 10
    for _ in range(said):
        await stream.next()
    assert budget.used_bytes == before
    stream.send(large)


async def test_one_client_that_does_not_read_leaves_the_others_their_memory() -> None:
    """It repeats its settings and reads no answer; other clients still have memory (G13, G17)."""
    budget = MemoryBudget(256 << 20)
    stream, other = CommandStream(budget.share("Telemetry")), budget.share("Fetch")
    settings = TelemetryCommand(settings=Settings(publishing=Publishing(topics=[Resource(name="t" * (250 << 10))])))
    with pytest.raises(Overloaded):
        while True:
            stream.send(settings)
    other.draw(32 << 20)
    await stream.next()
    stream.send(settings)


@pytest.mark.parametrize(
    ("remaining_s", "wanted_ms", "expected_ms"),
    [
        (None, 5_000, 5_000),
        (None, 0, WAIT_MS_MAX),
        (None, -1, 0),
        (23.0, -1, 0),
        (23.0, 20_000, 20_000),
        (40.0, 40_000, 20_000),
        (8.0, 0, 6_500),
        (3.0, 20_000, 2_500),
        (0.9, 20_000, 0),
    ],
)
def test_an_empty_poll_is_answered_before_the_clients_deadline(
    remaining_s: float | None, wanted_ms: int, expected_ms: int
) -> None:
    """Half a second is kept for the way back, and no poll waits longer than 20 s."""
    assert Caller("c", remaining_s=remaining_s).wait_ms(wanted_ms) == expected_ms


def test_what_clients_say_of_themselves_counts_as_long_as_they_are_there() -> None:
    """The newest settings of each; those beyond the limit are refused and change nothing (G17)."""
    budget = MemoryBudget(RESIDENT_PERCENT * 100)
    clients = ClientTable(budget.share("clients"))
    client = clients.touch(Caller("a"), 0.0)
    small, large = (Settings(publishing=Publishing(topics=[Resource(name="t" * size)])) for size in (10, 50_000))
    for _ in range(3):
        clients.set_settings(client, small)
    assert budget.used_bytes == SETTINGS_COPIES * small.ByteSize()
    with pytest.raises(Overloaded):
        clients.set_settings(client, large)
    assert client.settings is small
    budget.bytes_max = 0
    clients.set_settings(client, small)  # settings of the same or a smaller size are not refused
    clients.remove("a")
    assert not budget.used_bytes


async def test_what_a_client_takes_that_names_topics_is_counted() -> None:
    """G17: a name is a few bytes on the wire, and here a producer group with the client as a member."""
    budget, names = MemoryBudget(3 << 30), [f"topic-{number}" for number in range(TOPICS_MAX)]
    clients = ClientTable(budget.share("clients"))
    settings, clock = SimpleNamespace(name="snode-0"), VirtualClock()
    runtime: Any = SimpleNamespace(settings=settings, incarnation="i", clock=clock, randomness=Randomness(1))
    registration = ClientRegistration(Membership(clock), runtime)
    transactions: Any = TransactionActivity(TransactionProcessor(runtime, None, None, None), None)  # type: ignore[arg-type]
    stream = CommandStream()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        client = clients.touch(Caller("a"), 0.0)
        clients.add_published_topics(client, names)
        client.stream = stream
        transactions.watch_transactions(client)
        await registration.register(client)
        taken_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken_bytes < budget.used_bytes * RESIDENT_PERCENT // 100 < 2 * taken_bytes
    budget.bytes_max = budget.used_bytes
    clients.add_published_topics(client, names)  # unchanged
    other = clients.touch(Caller("b"), 0.0)
    with pytest.raises(Overloaded):
        clients.add_published_topics(other, names)
    assert not other.published_topics
    for name in "ab":
        clients.remove(name)
    assert not budget.used_bytes


def test_of_the_topics_that_one_client_sends_to_a_bounded_number_is_known() -> None:
    """G17: each is a producer group in which it would be a member."""
    clients = ClientTable(MemoryBudget(1 << 30).share("clients"))
    client = clients.touch(Caller("a"), 0.0)
    for number in range(TOPICS_MAX + 3):
        clients.add_published_topics(client, {f"t{number}"})
    assert len(client.published_topics) == TOPICS_MAX
    clients.remove("a")
    assert clients.all() == []
