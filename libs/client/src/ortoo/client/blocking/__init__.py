"""The client for programs without an event loop: the same calls, each returning when it has completed.

    from ortoo.client import Message
    from ortoo.client.blocking import connect

    with connect("localhost:8081") as mq:
        with mq.producer("orders") as producer:
            receipt = producer.send(Message(b"hello"))
        with mq.consumer("billing", "orders") as consumer:
            for message in consumer:
                consumer.ack(message)

One thread runs the event loop of each connection. Calls may come from any thread. Without a `with` block, call
`close()` at the end. `mq.with_timeout(5.0)`, `producer.with_timeout(5.0)` and so on limit each call to 5 seconds.
"""

from ortoo.client.blocking.admin import BlockingAdmin, BlockingGroupAdmin
from ortoo.client.blocking.client import (
    BlockingClient,
    BlockingProducer,
    BlockingTransaction,
    BlockingTransactionalProducer,
    connect,
)
from ortoo.client.blocking.consumers import BlockingConsumer, BlockingPopConsumer, BlockingPullConsumer

__all__ = [
    "BlockingAdmin",
    "BlockingClient",
    "BlockingConsumer",
    "BlockingGroupAdmin",
    "BlockingPopConsumer",
    "BlockingProducer",
    "BlockingPullConsumer",
    "BlockingTransaction",
    "BlockingTransactionalProducer",
    "connect",
]
