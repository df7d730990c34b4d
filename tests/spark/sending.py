"""Messages for tests, and their receipts."""

from collections.abc import Sequence

from ortoo.client import Message, Receipt
from tests.spark.session import Broker


def send(broker: Broker, topic: str, messages: Sequence[Message]) -> list[Receipt]:
    """Send messages and wait until they are stored."""
    with broker.client.producer(topic) as producer:
        return producer.send_many(messages)


def numbered(count: int, first: int = 0) -> list[Message]:
    """Messages whose bodies are numbers."""
    return [Message(b"%d" % number) for number in range(first, first + count)]


def varied(count: int) -> list[Message]:
    """Messages that together use every column."""
    return [
        Message(
            bytes([number % 256, 255, 0]) * (1 + number % 7),
            f"tag-{number % 3}" if number % 4 else None,
            tuple(f"key-{number}-{each}" for each in range(number % 3)),
            message_group=f"group-{number % 5}" if number % 2 else None,
            properties={f"name {each}": f"wert ü {number}" for each in range(number % 4)},
            message_id=f"own-{number}" if number % 6 == 0 else None,
            born_at_ms=1_700_000_000_000 + number,
            born_host=f"10.0.0.{number % 4}" if number % 3 else None,
            trace_context=f"00-{number:032x}-{number:016x}-01" if number % 5 == 0 else None,
            expire_at_ms=4_000_000_000_000 + number if number % 4 == 0 else None,
        )
        for number in range(count)
    ]


def stored(broker: Broker, topic: str) -> int:
    """How many messages a topic holds."""
    return sum(end - begin for begin, end in broker.queues(topic).values())
