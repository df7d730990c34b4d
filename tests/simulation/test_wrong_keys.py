"""Keys that are no tuple or list of texts are refused in the same way by each kind of send, and no other message is."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from ortoo.client import (
    Client,
    Invalid,
    Message,
    PoppedMessage,
    Producer,
    Receipt,
    TransactionalProducer,
    TransactionCheck,
    TransactionVerdict,
    blocking,
    connect,
)
from ortoo.common.process.background import Background
from ortoo.testing.pytest_broker import BlockingBroker, Broker

pytestmark = pytest.mark.ortoo(topics=["jobs"])
NO_LIST = r"keys are a {}; give a tuple or a list of texts, such as \('a',\)$"
NO_TEXT = r"the key is a {}; give text \(str\)$"
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a text": (lambda: "abc", NO_LIST.format("str")),
    "an empty text": (lambda: "", NO_LIST.format("str")),
    "bytes": (lambda: b"abc", NO_LIST.format("bytes")),
    "a generator": (lambda: (key for key in ("a", "b")), NO_LIST.format("generator")),
    "an iterator": (lambda: iter(["a", "b"]), NO_LIST.format("list_iterator")),
    "a set": (lambda: {"a", "b"}, NO_LIST.format("set")),
    "an empty set": (lambda: set[str](), NO_LIST.format("set")),
    "a dict": (lambda: {"a": "b"}, NO_LIST.format("dict")),
    "a number": (lambda: 17, NO_LIST.format("int")),
    "nothing": (lambda: None, NO_LIST.format("NoneType")),
    "a list with a number": (lambda: ["a", 17], NO_TEXT.format("int")),
    "a tuple with bytes": (lambda: ("a", b"b"), NO_TEXT.format("bytes")),
    "a tuple with nothing": (lambda: ("a", None), NO_TEXT.format("NoneType")),
}
"""For each message its own keys, because some can be read only once; and the end of the error."""
GOOD: list[Message | bytes] = [
    Message(b"good", keys=["x"]),
    b"bare",
    Message(b"good", "tag"),
    Message(b"good", keys=("a", "b")),
]


@contextmanager
def refused(error: str) -> Iterator[None]:
    """The block raises this error about the keys, or about one of them."""
    with pytest.raises(Invalid, match=error) as caught:
        yield
    assert caught.value.field.endswith(".keys" if error.startswith("keys") else ".keys[1]")


class Senders:
    """All objects of a client that send."""

    def __init__(self, mq: Client, producer: Producer, transactional: TransactionalProducer) -> None:
        self.mq = mq
        self.producer = producer
        self.transactional = transactional


async def taken_together(futures: Iterable[Awaitable[Receipt]], good: int) -> None:
    """Await futures of which the last `good` ones are of good messages, and raise the failure of the first."""
    [failure, *others] = await asyncio.gather(*map(_outcome, futures), return_exceptions=True)
    assert len([one for one in others if isinstance(one, Receipt)]) == good == len(others)
    assert isinstance(failure, BaseException)
    raise failure


async def _outcome(future: Awaitable[Receipt]) -> Receipt:
    return await future


async def enqueue_with_others(to: Senders, wrong: Message) -> None:
    """Other messages follow into the same batch."""
    await taken_together([await to.producer.enqueue(one) for one in (wrong, *GOOD)], len(GOOD))


async def enqueue_behind_others(to: Senders, wrong: Message) -> None:
    """The message joins an open batch."""
    good = [await to.producer.enqueue(one) for one in GOOD]
    await taken_together([await to.producer.enqueue(wrong), *good], len(GOOD))


async def enqueue_nowait(to: Senders, wrong: Message) -> None:
    """Without waiting."""
    await taken_together([to.producer.enqueue_nowait(one) for one in (wrong, *GOOD)], len(GOOD))


async def enqueue_alone(to: Senders, wrong: Message) -> None:
    """The batch has no other message."""
    await (await to.producer.enqueue(wrong))


async def enqueue_of_a_group(to: Senders, wrong: Message) -> None:
    """The message has rare fields."""
    await (await to.producer.enqueue(wrong.replace(message_group="g")))


async def send_many(to: Senders, wrong: Message) -> None:
    """Bare bodies are among the messages."""
    await taken_together(await to.producer.send_many([wrong, *GOOD]), len(GOOD))


async def send_many_messages(to: Senders, wrong: Message) -> None:
    """All are messages, and most have no rare fields."""
    messages = [wrong, *[Message(b"%d" % n, keys=(f"k{n}",)) for n in range(300)], Message(b"z", message_group="g")]
    await taken_together(await to.producer.send_many(messages), len(messages) - 1)


async def send_many_wrong(to: Senders, wrong: Message) -> None:
    """No message is good."""
    await taken_together(await to.producer.send_many([wrong]), 0)


async def send_once(to: Senders, wrong: Message) -> None:
    """With a dedup id."""
    await to.producer.send_once(wrong, "17")


async def request(to: Senders, wrong: Message) -> None:
    """As a request for a reply."""
    await to.producer.request(wrong)


async def transaction(to: Senders, wrong: Message) -> None:
    """All messages of a transaction are stored or none."""
    await to.transactional.begin(Message(b"good"), wrong)


async def schedule(to: Senders, wrong: Message) -> None:
    """As the message of a schedule."""
    await to.mq.admin.schedules.create("jobs", "nightly", wrong, every=timedelta(hours=1))


WAYS = (
    lambda to, wrong: to.producer.send(wrong),
    enqueue_with_others,
    enqueue_behind_others,
    enqueue_nowait,
    enqueue_alone,
    enqueue_of_a_group,
    send_many,
    send_many_messages,
    send_many_wrong,
    send_once,
    request,
    transaction,
    schedule,
)


def undecided(check: TransactionCheck) -> TransactionVerdict:
    """No transaction is committed by a check."""
    return TransactionVerdict.UNKNOWN


@pytest.fixture
async def senders(broker: Broker) -> AsyncIterator[Senders]:
    """The senders of one client."""
    async with AsyncExitStack() as stack:
        mq = await stack.enter_async_context(connect())
        producer = await stack.enter_async_context(mq.producer("jobs"))
        yield Senders(mq, producer, await stack.enter_async_context(mq.transactional_producer("jobs", "g", undecided)))


@pytest.mark.parametrize("keys", WRONG)
async def test_wrong_keys_are_refused_alone_by_each_kind_of_send(senders: Senders, keys: str) -> None:
    """The error names the field, the type that was given and the type to give. Other messages are stored."""
    made, error = WRONG[keys]
    for way in WAYS:
        with refused(error):
            await way(senders, Message(b"wrong", keys=made()))
    receipt = await senders.producer.send(Message(b"right", keys=["a"]))
    assert receipt.offset >= 0, "the producer works as before"


@pytest.mark.parametrize(
    ("body", "tag", "error"),
    [
        (None, None, "the body is a NoneType"),
        ("text", None, "the body is a str"),
        (b"x", 5, "the tag is a int"),
        (b"x", ["t"], "the tag is a list"),
    ],
)
async def test_other_values_of_a_wrong_type_are_refused_alone(
    senders: Senders, body: Any, tag: Any, error: str
) -> None:
    """The error names the field. Other messages of the batch are stored."""
    for way in WAYS:
        with pytest.raises(Invalid, match=error):
            await way(senders, Message(body, tag))


async def test_wrong_keys_of_a_reply_are_refused(broker: Broker, senders: Senders) -> None:
    """The replier gets the error, and can reply again."""
    errors = []

    async def handle(message: PoppedMessage) -> None:
        for made, error in WRONG.values():
            with refused(error):
                await message.reply(Message(b"wrong", keys=made()))
            errors.append(error)
        await message.reply(Message(b"right", keys=["a"]))

    async with senders.mq.pop_consumer("g", "jobs") as consumer, Background("replier") as background:
        background.spawn("run", consumer.run(handle))
        assert (await senders.producer.request(b"?", timeout_s=30.0)).keys == ("a",)
    assert len(errors) == len(WRONG)


async def test_wrong_keys_are_refused_by_the_brokers_own_send(broker: Broker) -> None:
    """The test that sends them fails."""
    for made, error in WRONG.values():
        with refused(error):
            await broker.send("jobs", Message(b"wrong", keys=made()))


def test_wrong_keys_are_refused_by_the_blocking_client(blocking_broker: BlockingBroker) -> None:
    """Each of its calls raises what the asynchronous call raises."""
    with (
        blocking.connect() as mq,
        mq.producer("jobs") as producer,
        mq.transactional_producer("jobs", "g", undecided) as transactional,
    ):
        for made, error in WRONG.values():
            ways: tuple[Callable[[Message], object], ...] = (
                producer.send,
                lambda wrong: producer.send_many([wrong, *GOOD]),
                lambda wrong: producer.send_once(wrong, "17"),
                producer.request,
                transactional.begin,
                lambda wrong: blocking_broker.send("jobs", wrong),
            )
            for way in ways:
                with refused(error):
                    way(Message(b"wrong", keys=made()))
