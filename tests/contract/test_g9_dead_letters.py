"""G9: after N attempts a message is in the dead-letter topic exactly once, with the reason."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ortoo.common.errors import NotFound, Unavailable
from ortoo.common.groups.pop import LeasePart, Redeliver, ReplayRequest, ranges_of
from ortoo.common.records.batch import encode, open_batch
from ortoo.common.records.message import BODY_BYTES_MAX, Message
from ortoo.common.records.message_id import message_id_text
from ortoo.common.records.text_rules import COPY_LIMITS, PROPERTIES_MAX, TEXT_BYTES_MAX
from ortoo.enode.appends.router import AppendRouter
from ortoo.enode.delays.scheduler import DelayScheduler
from ortoo.enode.pops.parking import RETRY_DELAY_MS, ParkedMessage
from ortoo.enode.pops.retry_copies import RetryCopies
from ortoo.verification.time.virtual_clock import EPOCH_MS
from tests.contract.one_store import TOPIC
from tests.contract.pop_store import DEAD_LETTERS, GROUP, PopStore, play, texts


def test_the_last_failed_attempt_parks_the_message_with_everything_one_asks() -> None:
    """E-172: it has reason, attempts, last error, consumer and origin, and the message is not delivered again."""

    async def scenario(it: PopStore) -> None:
        await it.send("before", queue_id=1)
        await it.one.clock.sleep(1)
        sent = Message(b"a", "tag", ("key",), priority=3, deliver_at_ms=2, expire_at_ms=1 << 50, properties={"k": "v"})
        await it.store.append(TOPIC, 1, encode([sent], now_ms=1))
        await it.ack(await it.pop(1))
        await it.one.clock.sleep(1)
        for number in range(3):
            popped = await it.pop()
            assert texts(popped) == ["a"]
            await it.nack(popped, error=f"boom {number}")
        assert texts(await it.pop(wait_ms=60_000)) == []
        [letter] = await it.dead_letters()
        assert (letter.body, letter.tag, tuple(letter.keys), letter.properties["k"]) == (b"a", "tag", ("key",), "v")
        assert letter.message_id == message_id_text(TOPIC, "enode-0", 1, 1)
        told = letter.properties
        assert told["DLQ_REASON"] == "attempts"
        assert told["DLQ_ATTEMPTS"] == "3"
        assert told["DLQ_ERROR"] == "boom 2"
        assert told["DLQ_CONSUMER"] == "me"
        assert (told["DLQ_ORIGIN_TOPIC"], told["DLQ_GROUP"]) == ("orders", "billing")
        assert (told["DLQ_ORIGIN_ENODE"], told["DLQ_ORIGIN_QUEUE_ID"], told["DLQ_ORIGIN_OFFSET"]) == (
            "enode-0",
            "1",
            "1",
        )
        assert (told["DLQ_PRIORITY"], told["DLQ_DELIVER_AT_MS"], told["DLQ_EXPIRE_AT_MS"]) == ("3", "2", str(1 << 50))
        assert told["DLQ_ORIGIN_MESSAGE_ID"] == letter.message_id
        assert EPOCH_MS <= int(told["DLQ_ORIGIN_STORED_AT_MS"]) < int(told["DLQ_PARKED_AT_MS"])
        assert int(told["DLQ_PARKED_AT_MS"]) <= it.one.clock.now_ms() < EPOCH_MS + 600_000
        assert (letter.priority, letter.deliver_at_ms, letter.expire_at_ms) == (None, None, None)

    play(scenario)


def test_a_plain_message_is_parked_with_no_more_than_it_has() -> None:
    """Absent fields of a message, such as time and priority, are absent in its dead letter."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        it.rules = replace(it.rules, attempts_max=1)
        await it.nack(await it.pop())
        [letter] = await it.dead_letters()
        absent = {"DLQ_PRIORITY", "DLQ_DELIVER_AT_MS", "DLQ_EXPIRE_AT_MS"}
        assert absent.isdisjoint(letter.properties)
        assert "" not in letter.properties.values()

    play(scenario)


@pytest.mark.parametrize(
    "sent",
    [
        Message(b"a"),
        Message(b"a", properties={f"p{number}": "v" for number in range(PROPERTIES_MAX)}),
        Message(b"a", "t", ("k",), properties={"p": "v" * (TEXT_BYTES_MAX - 3)}),
        Message(b"a" * BODY_BYTES_MAX, properties={"p": "v" * (TEXT_BYTES_MAX - 1)}),
        Message(b"a" * BODY_BYTES_MAX, None, ("k",) * 13_000),
    ],
    ids=[
        "plain",
        "maximum number of properties",
        "maximum size of texts",
        "maximum size of a message",
        "many keys",
    ],
)
def test_whatever_a_message_holds_and_its_consumer_says_it_is_parked(sent: Message) -> None:
    """G9: a dead letter has an error of any length and all fields of the message, and can be resent."""

    async def scenario(it: PopStore) -> None:
        await it.store.append(TOPIC, 0, encode([sent], now_ms=1))
        for _ in range(3):
            await it.nack(await it.pop(), error="boom:\n\tat line 2\x7f" + "\u00e9" * 5_000)
        [letter] = await it.dead_letters()
        told = letter.properties
        assert (told["DLQ_REASON"], told["DLQ_ERROR"]) == ("attempts", "boom:  at line 2 " + "\u00e9" * 1_007)
        assert (letter.body, letter.tag, letter.keys) == (sent.body, sent.tag, sent.keys)
        assert {name: told[name] for name in sent.properties} == sent.properties
        intake = AppendRouter(it.store, DelayScheduler(it.store, it.background, clock=it.one.clock), None)  # type: ignore[arg-type]
        sending = RetryCopies(it.store, it.leasing.batches, intake, it.one.clock, it.background)
        assert await sending.replay(ReplayRequest(DEAD_LETTERS, GROUP, ((0, 1),), TOPIC)) == [(0, 1)]
        [again] = open_batch((await it.store.fetch(TOPIC, 0, 1)).batches[0].batch)
        assert {name: again.properties[name] for name in sent.properties} == sent.properties

    play(scenario)


def test_what_was_parked_while_somebody_waited_to_park_it_is_parked_once() -> None:
    """G9: a request that waited for the disk finds that another one has parked its message meanwhile."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b", "c")
        await it.pop(3)
        line, letters = (
            it.leasing.lines.group(TOPIC, GROUP).get_line(0),
            [ParkedMessage(offset, 3) for offset in range(3)],
        )
        parking = it.leasing.parking
        await parking.park(line, letters[:2], it.rules)
        await parking.park(line, letters, it.rules)
        await parking.park(line, letters, it.rules)
        assert [one.body for one in await it.dead_letters()] == [b"a", b"b", b"c"]

    play(scenario)


def test_parking_twice_at_once_makes_one_dead_letter_and_both_hear_of_its_end() -> None:
    """G9: a request for a message that is being parked waits for the result, success or failure."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b")
        await it.pop(2)
        line, letters = it.leasing.lines.group(TOPIC, GROUP).get_line(0), [ParkedMessage(0, 3), ParkedMessage(1, 3)]
        parking = it.leasing.parking
        for rules, wrong in ((replace(it.rules, dead_letter_topic_id=99), NotFound), (it.rules, None)):
            ended = await asyncio.gather(*(parking.park(line, letters, rules) for _ in (1, 2)), return_exceptions=True)
            assert [type(one) for one in ended] == [wrong or type(None)] * 2
        assert [one.body for one in await it.dead_letters()] == [b"a", b"b"]
        with pytest.raises(Unavailable, match=r"^the dead-letter topic is being created") as refused:
            await parking.park(line, letters, replace(it.rules, dead_letter_topic_id=0))
        assert refused.value.retry_after_ms == RETRY_DELAY_MS

    play(scenario)


def test_leases_that_run_out_count_as_attempts() -> None:
    """A handler that crashes its process gets the message parked in the end."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        for _ in range(3):
            assert texts(await it.pop(invisible_ms=10, wait_ms=50)) == ["a"]
        assert texts(await it.pop(wait_ms=50)) == []
        await it.one.clock.sleep(1)
        [letter] = await it.dead_letters()
        assert letter.properties["DLQ_ATTEMPTS"] == "3"

    play(scenario)


def test_giving_back_without_counting_never_parks() -> None:
    """A consumer that stops, or lost its database, releases messages without counting an attempt."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        for _ in range(20):
            await it.nack(await it.pop(), counts=False)
        assert await it.dead_letters() == []
        assert texts(await it.pop()) == ["a"]

    play(scenario)


def test_the_creation_of_a_dead_letter_topic_is_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first dead letter of each group waits for it. Other failures are reported."""
    warnings: list[str] = []
    recorder = SimpleNamespace(emit=lambda event, **fields: warnings.append(str(fields["reason"])))
    monkeypatch.setattr("ortoo.enode.pops.parking._log", recorder)

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        for topic_id in (0, 99):
            it.rules = replace(it.rules, attempts_max=1, dead_letter_topic_id=topic_id)
            await it.nack(await it.pop(), error="boom")
            await it.one.clock.sleep(5)
            assert len(warnings) == bool(topic_id)

    play(scenario)


def test_without_a_dead_letter_topic_the_message_stays_and_the_pop_asks_for_one() -> None:
    """No message is dropped, and others are delivered."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b")
        await it.pop(1, invisible_ms=10)
        await it.one.clock.sleep(1)
        popped = await it.pop(attempts_max=1, dead_letter_topic_id=0)
        assert texts(popped) == ["b"]
        assert popped.needs_dead_letter_topic
        await it.one.clock.sleep(2)
        assert texts(await it.pop(attempts_max=1)) == []
        await it.one.clock.sleep(1)
        assert [one.body for one in await it.dead_letters()] == [b"a"]

    play(scenario)


def test_a_message_that_says_at_length_where_it_lay_is_parked_too() -> None:
    """G9: a system property of a message in an ordinary topic, which earlier versions stored, is left out."""

    async def scenario(it: PopStore) -> None:
        made_up = {"RETRY_TOPIC": "x" * (TEXT_BYTES_MAX - 100), "ORIGIN_MESSAGE_ID": "y"}
        await it.store.append(TOPIC, 0, encode([Message(b"a", properties=made_up)], now_ms=1, limits=COPY_LIMITS))
        for _ in range(3):
            await it.nack(await it.pop(), error="\u00e9" * 5_000)
        [letter] = await it.dead_letters()
        told = letter.properties
        assert (told["DLQ_ORIGIN_TOPIC"], told["DLQ_ORIGIN_OFFSET"]) == (it.store.topic_name(TOPIC), "0")
        assert told.keys().isdisjoint(made_up)

    play(scenario)


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("attempts_max", [1, 3])
def test_a_groups_first_dead_letter_says_why_too(attempts_max: int, is_cut: bool) -> None:
    """The dead-letter topic is created when a message must be parked; its last error is kept until then (G9)."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        it.rules = replace(it.rules, attempts_max=attempts_max, dead_letter_topic_id=0)
        for number in range(1, attempts_max + 1):
            await it.nack(await it.pop(), error=f"boom {number}")
        if is_cut:
            await it.one.clock.sleep(5)
            await it.crash()
        await it.one.clock.sleep(60)
        it.rules = replace(it.rules, dead_letter_topic_id=DEAD_LETTERS)
        assert texts(await it.pop()) == []
        await it.one.clock.sleep(1)
        [letter] = await it.dead_letters()
        said = [letter.properties[f"DLQ_{name}"] for name in ("ATTEMPTS", "ERROR", "CONSUMER")]
        assert said == [str(attempts_max), f"boom {attempts_max}", "me"]

    play(scenario)


def test_a_power_cut_while_parking_neither_loses_nor_doubles() -> None:
    """The dead letter and the message's ack are one frame."""

    async def scenario(it: PopStore) -> None:
        for seed in range(6):
            await it.send(f"m{seed}")
            await it.one.clock.sleep(60)
            popped = await it.pop(attempts_max=1)
            number = sum(1 for one in await it.dead_letters())
            it.rules = it.rules.__class__(attempts_max=1, dead_letter_topic_id=DEAD_LETTERS)
            await it.nack(popped)
            await it.crash(seed)
            assert len(await it.dead_letters()) == number + len(texts(popped))
            assert texts(await it.pop()) == []

    play(scenario)


def test_dead_letters_are_counted_by_topic_and_group() -> None:
    """The operators' count is the number of dead letters."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b")
        for _ in range(3):
            await it.nack(await it.pop(2))
        assert len(await it.dead_letters()) == 2
        assert it.leasing.parking.parked_totals == {(TOPIC, "billing"): 2}

    play(scenario)


async def park_by_operator(it: PopStore, *offsets: int) -> None:
    """Park messages of queue 0, whichever consumer holds them."""
    part = LeasePart(0, 0, ranges_of(offsets), any_lease=True)
    how = Redeliver(counts=False, consumer="operator ann", park=True, rules=it.rules)
    assert await it.leasing.settle(TOPIC, GROUP, [part], how) == []


@pytest.mark.parametrize("parks_first", [True, False])
def test_a_message_that_an_operator_parks_is_either_acknowledged_or_parked(parks_first: bool) -> None:
    """The consumer acknowledges it at the same time. Its acknowledgement is refused if the message is parked."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b")
        popped = await it.pop()
        requests = [park_by_operator(it, 0, 1), it.ack(popped)]
        ordered = requests if parks_first else requests[::-1]
        answers = await asyncio.gather(*ordered)
        assert (answers[parks_first], len(await it.dead_letters())) == ((2, 2) if parks_first else (0, 0))
        assert texts(await it.pop(wait_ms=60_000)) == []

    play(scenario)


@pytest.mark.parametrize("in_order", [True, False])
def test_messages_that_an_operator_parks_are_not_delivered_meanwhile(in_order: bool) -> None:
    """One is deliverable again, one was never delivered. A pop at the same time gets only the others."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b", "c", group="order-1" if in_order else None)
        await it.nack(await it.pop(1, in_order=in_order))
        _, popped = await asyncio.gather(park_by_operator(it, 0, 1), it.pop(in_order=in_order, wait_ms=1_000))
        assert texts(popped) == ["c"]
        letters = [(one.body, one.properties["DLQ_ATTEMPTS"]) for one in await it.dead_letters()]
        assert letters == [(b"a", "1"), (b"b", "0")]

    play(scenario)
