"""The client for programs without an event loop: the same calls, each returning when it is done.

    with connect("localhost:8081") as mq:
        with mq.producer("orders") as producer:
            receipt = producer.send(Message(b"hello"))
        with mq.consumer("billing", "orders") as consumer:
            for message in consumer:
                consumer.ack(message)

One thread runs the event loop of each connection; calls may come from any thread. Without blocks, `close()` does what
the end of a block does; `mq.within(5.0)`, `producer.within(5.0)` and the like give each call so many seconds.
"""

from ortoo.client.blocking.admin import Admin, GroupAdmin
from ortoo.client.blocking.client import Client, Producer, Transaction, TransactionalProducer, connect
from ortoo.client.blocking.consumers import Consumer, PopConsumer, PullConsumer

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "GroupAdmin",
    "PopConsumer",
    "Producer",
    "PullConsumer",
    "Transaction",
    "TransactionalProducer",
    "connect",
]
