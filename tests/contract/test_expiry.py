"""An expired message is not popped by any group; it is dropped and counted, or parked, by the group's setting."""

from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from tests.contract.one_store import TOPIC
from tests.contract.pop_store import GROUP, PopStore, play, texts


async def _send(it: PopStore, **lives_ms: int) -> None:
    """One batch of messages, each with its time to live; 0 = unlimited."""
    now_ms = it.one.clock.now_ms()
    messages = [
        Message(body.encode(), expire_at_ms=now_ms + life_ms if life_ms else None) for body, life_ms in lives_ms.items()
    ]
    await it.store.append(TOPIC, 0, encode(messages, now_ms=now_ms))


def test_expired_messages_are_left_out_of_pops_and_counted() -> None:
    """Holds for any part of a batch, and for a whole one; other messages are delivered as usual."""

    async def scenario(it: PopStore) -> None:
        await _send(it, a=1_000, b=0, c=60_000)
        await _send(it, d=1_000, e=1_000)
        await it.one.clock.sleep(1)
        assert texts(await it.pop()) == ["b", "c"]
        assert texts(await it.pop()) == []
        assert it.leasing.expired_totals == {(TOPIC, GROUP): 3}
        await it.crash()
        assert texts(await it.pop()) in ([], ["b", "c"])  # the lease may be lost, the dropped ones never come

    play(scenario)


def test_a_message_that_expires_at_its_consumer_does_not_come_again() -> None:
    """The lease ends after the message has expired; a message that is acknowledged late is still finished."""

    async def scenario(it: PopStore) -> None:
        await _send(it, a=5_000)
        assert texts(await it.pop(invisible_ms=4_000)) == ["a"]
        await it.one.clock.sleep(4.5)
        popped = await it.pop(invisible_ms=1_000)
        assert texts(popped) == ["a"]
        await it.one.clock.sleep(2)
        assert texts(await it.pop()) == []
        assert await it.ack(popped) == 0

    play(scenario)


def test_a_group_may_park_what_expires() -> None:
    """The dead letter has the reason and does not expire, and the next one of its message group is free."""

    async def scenario(it: PopStore) -> None:
        now_ms = it.one.clock.now_ms()
        first = Message(b"a", message_group="k", expire_at_ms=now_ms + 1_000)
        await it.store.append(TOPIC, 0, encode([first, Message(b"b", message_group="k")], now_ms=now_ms))
        await it.one.clock.sleep(2)
        popped = await it.pop(wait_ms=60_000, in_order=True, park_expired=True)
        assert texts(popped) == ["b"]
        [letter] = await it.dead_letters()
        assert (letter.body, letter.expire_at_ms, letter.properties["DLQ_REASON"]) == (b"a", None, "expired")
        assert letter.properties["DLQ_EXPIRE_AT_MS"] == str(now_ms + 1_000)

    play(scenario)


def test_without_a_dead_letter_topic_expired_messages_wait_for_it() -> None:
    """Such a group gets every message."""

    async def scenario(it: PopStore) -> None:
        await _send(it, a=1_000)
        await it.one.clock.sleep(2)
        asked = await it.pop(park_expired=True, dead_letter_topic_id=0)
        assert asked.needs_dead_letter_topic
        await it.one.clock.sleep(2)
        assert texts(await it.pop(wait_ms=1_000, park_expired=True)) == []
        assert [letter.body for letter in await it.dead_letters()] == [b"a"]

    play(scenario)
