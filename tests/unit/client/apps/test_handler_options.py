"""The options of a program's handlers: batches, middleware, retries by exception, timeouts, restarts, health."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from ortoo.client import App, Invalid, Message, PoppedMessage, connect
from ortoo.client.apps.retries import RetryRules
from ortoo.client.core.handlers import PARK_LEVEL, RetryLater
from ortoo.testing.pytest_broker import Broker

pytestmark = pytest.mark.ortoo(topics=["one", "two"])
USER: ContextVar[str] = ContextVar("user", default="")
SECOND = timedelta(seconds=1)


class Away(Exception):
    """A service cannot be reached."""


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_handler_takes_batches(broker: Broker, in_thread: bool) -> None:
    """All that is available, up to the limit; a body that cannot be decoded is parked, and the others are handled."""
    app, batches = App("g"), list[list[int]]()

    def take(values: list[int], messages: list[PoppedMessage]) -> None:
        batches.append(values)
        assert [int(one.body) for one in messages] == values

    async def take_on_loop(values: list[int], messages: list[PoppedMessage]) -> None:
        take(values, messages)

    app.consumer("one", batch_messages_max=3, concurrency=1)(take if in_thread else take_on_loop)
    async with connect() as mq:
        async with mq.producer("one") as producer:
            await (await producer.send_many([b"1", b"nonsense", b"2", b"3"]))
        async with app.running(mq):
            await broker.clock.advance("1s")
    assert sorted(number for batch in batches for number in batch) == [1, 2, 3]
    assert max(map(len, batches)) > 1
    [letter] = await broker.dead_letters("g")
    assert letter.message.body == b"nonsense"


async def test_a_failed_batch_comes_again_except_what_was_settled(broker: Broker) -> None:
    """Each message after its own delay, and with its own number of attempts."""
    app, seen = App("g"), list[list[tuple[bytes, int]]]()

    @app.consumer("one", batch_messages_max=10, retries=(SECOND, SECOND))
    async def take(bodies: list[bytes], messages: Sequence[PoppedMessage]) -> None:
        seen.append(sorted((one.body, one.attempt) for one in messages))
        for one in messages:
            if one.body == b"done":
                await one.ack()
            if one.body == b"bad":
                await one.park("unusable")
        raise Away

    async with connect() as mq:
        async with mq.producer("one") as producer:
            await (await producer.send_many([b"done", b"bad", b"again"]))
        async with app.running(mq):
            await broker.clock.advance("10s")
    assert seen[0] == [(b"again", 1), (b"bad", 1), (b"done", 1)]
    assert seen[1:] == [[(b"again", 2)], [(b"again", 3)]]
    letters = {letter.message.body: letter.error for letter in await broker.dead_letters("g")}
    assert letters == {b"bad": "unusable", b"again": "Away"}


async def test_a_batch_needs_a_list() -> None:
    """The declaration is refused, not the first message."""
    with pytest.raises(Invalid, match="list"):
        App("g").consumer("one", batch_messages_max=3)(lambda_of_bytes)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"concurrency": 0}, "0; expected 1 or more"),
        ({"batch_messages_max": -1}, "-1; expected 1 or more"),
        ({"timeout": timedelta(0)}, "0 s; expected a time above 0"),
    ],
)
async def test_options_out_of_range_are_refused(option: dict[str, Any], text: str) -> None:
    """At the declaration: no message would be handled, without an error."""
    with pytest.raises(Invalid, match=text):
        App("g").consumer("one", **option)(lambda_of_bytes)


def lambda_of_bytes(body: bytes) -> None:
    """A handler of single messages."""


@pytest.mark.parametrize("in_thread", [False, True])
async def test_middleware_runs_around_each_call(broker: Broker, in_thread: bool) -> None:
    """The first one is the outermost; it sees the failure, and the handler sees its context variables."""
    app, seen = App("g"), list[str]()

    @app.middleware
    async def outer(messages: Sequence[PoppedMessage]) -> AsyncIterator[None]:
        seen.append(f"begin {messages[0].body.decode()}")
        token = USER.set("ann")
        try:
            yield
        except Away:
            seen.append("failed")
            raise
        finally:
            USER.reset(token)
            seen.append("end")

    @app.middleware
    async def inner(messages: Sequence[PoppedMessage]) -> AsyncIterator[None]:
        seen.append("inner")
        yield

    def handle(body: bytes) -> None:
        seen.append(f"{body.decode()} by {USER.get()}")
        if body == b"bad":
            raise Away

    async def handle_on_loop(body: bytes) -> None:
        handle(body)

    app.consumer("one", retries=(), concurrency=1)(handle if in_thread else handle_on_loop)
    async with connect() as mq, app.running(mq):
        await broker.send("one", b"good")
        await broker.clock.advance("1s")
        await broker.send("one", b"bad")
        await broker.clock.advance("2m")
    assert seen[:4] == ["begin good", "inner", "good by ann", "end"]
    assert seen[4:9] == ["begin bad", "inner", "bad by ann", "failed", "end"]
    assert [letter.error for letter in await broker.dead_letters("g")] == ["Away"]


async def test_send_middleware_sees_and_changes_each_message(broker: Broker) -> None:
    """Of all producers of the program."""
    app, sent = App("g"), list[bytes]()
    producer = app.producer("one", bytes)

    @app.send_middleware
    async def stamp(message: Message) -> AsyncIterator[Message]:
        yield message.replace(properties={**message.properties, "TENANT": "acme"})
        sent.append(message.body)

    async with connect() as mq, app.running(mq):
        await producer.send(b"x", Message(b"", properties={"A": "b"}))
    [stored] = await broker.messages("one")
    assert (stored.message.properties, sent) == ({"A": "b", "TENANT": "acme"}, [b"x"])


async def test_a_middleware_has_a_yield() -> None:
    """Another function is refused when it is declared."""

    async def plain(messages: Sequence[PoppedMessage]) -> None: ...

    with pytest.raises(Invalid, match="one `yield`"):
        App("g").middleware(plain)  # type: ignore[arg-type]


def test_retries_are_chosen_by_the_exception() -> None:
    """The first type that matches, or else the group's policy. After the last delay the message is parked."""
    rules = RetryRules({ConnectionError: (SECOND, 2 * SECOND), ValueError: (), OSError: (3 * SECOND,)})
    reset, wrong, other = ConnectionResetError("x"), UnicodeError("y"), KeyError("z")
    delays = [rules.failure_of(attempt, reset, 0.5) for attempt in (1, 2, 3)]
    assert [(one.delay_ms, one.delay_level) for one in delays if isinstance(one, RetryLater)] == [
        (1000.0, 0),
        (2000.0, 0),
        (None, PARK_LEVEL),
    ]
    assert all(one.__cause__ is reset for one in delays)
    parked = rules.failure_of(1, wrong, 0.5)
    assert isinstance(parked, RetryLater)
    assert parked.delay_level == PARK_LEVEL
    assert rules.failure_of(1, other, 0.5) is other
    own = RetryLater(delay_ms=7)
    assert rules.failure_of(1, own, 0.5) is own
    assert (rules.attempts_max, RetryRules({OSError: (SECOND,) * 20}).attempts_max) == (0, 21)
    assert (RetryRules((SECOND,)).attempts_max, RetryRules(None).attempts_max) == (2, 0)


def test_delays_change_by_the_jitter() -> None:
    """By up to its part, to both sides; a wrong part is refused."""
    rules = RetryRules((10 * SECOND,), jitter=0.2)
    found = [rules.failure_of(1, Away(), chance) for chance in (0.0, 0.5, 1.0)]
    assert [round(one.delay_ms or 0) for one in found if isinstance(one, RetryLater)] == [8_000, 10_000, 12_000]
    with pytest.raises(Invalid, match="jitter"):
        RetryRules(None, jitter=1.5)


async def test_exceptions_choose_retries_in_a_program(broker: Broker) -> None:
    """One is retried, the other is a dead letter at once."""
    app, seen = App("g"), list[bytes]()

    @app.consumer("one", retries={Away: (SECOND,), ValueError: ()}, retry_jitter=0.1)
    async def handle(body: bytes) -> None:
        seen.append(body)
        raise Away if body == b"away" else ValueError("never")

    async with connect() as mq, app.running(mq):
        for body in (b"away", b"wrong"):
            await broker.send("one", body)
        await broker.clock.advance("1m")
    assert sorted(seen) == [b"away", b"away", b"wrong"]
    letters = {letter.message.body: (letter.attempts, letter.error) for letter in await broker.dead_letters("g")}
    assert letters == {b"away": (2, "Away"), b"wrong": (1, "ValueError: never")}


async def test_a_handler_has_a_time_limit(broker: Broker) -> None:
    """It is cancelled, and the attempt has failed."""
    app, ends = App("g"), list[str]()

    @app.consumer("one", retries=(), timeout=timedelta(seconds=3))
    async def handle(body: bytes) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")

    await broker.send("one", b"x")
    async with connect() as mq, app.running(mq):
        await broker.clock.advance("5m")
    [letter] = await broker.dead_letters("g")
    assert letter.error == "TimeoutError: the handler did not return within 3 s"
    assert set(ends) == {"cancelled"}


async def test_a_consumer_that_fails_is_started_again(broker: Broker) -> None:
    """After its delays; the program still runs, and handles messages once the reason is gone."""
    app, seen = App("g", restarts=(SECOND, 60 * SECOND)), list[bytes]()

    @app.consumer("two")
    async def handle(body: bytes) -> None:
        seen.append(body)

    async with connect() as mq, app.running(mq) as running:
        await mq.admin.delete_topic("two", at_once=True)
        while not running.restarts:
            await broker.clock.advance("1s")
        await mq.admin.create_topic("two")
        await broker.clock.advance("90s")
        assert (running.is_running, running.health()[0]) == (True, 200)
        await broker.send("two", b"again")
        await broker.clock.advance("2s")
    assert seen == [b"again"]
    assert running.health() == (503, {"status": "stopped", "restarts": running.restarts, "error": None})


async def test_a_program_that_stops_starts_no_consumer_again(broker: Broker) -> None:
    """While another consumer finishes its handler, the time of the restart passes."""
    app, seen = App("g", restarts=(SECOND, 30 * SECOND)), list[bytes]()

    @app.consumer("one")
    async def slow(body: bytes) -> None:
        await broker.clock.advance("50s")
        seen.append(body)

    @app.consumer("two")
    async def handle(body: bytes) -> None:
        seen.append(body)

    async with connect() as mq, app.running(mq, finish_timeout_s=60) as running:
        await mq.admin.delete_topic("two", at_once=True)
        while not running.restarts:
            await broker.clock.advance("1s")
        await mq.admin.create_topic("two")
        await broker.send("two", b"late")
        await broker.send("one", b"x")
        await broker.clock.advance("1s")
    assert (seen, running.restarts) == ([b"x"], 1)
