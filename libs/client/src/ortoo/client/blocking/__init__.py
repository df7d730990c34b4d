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
`close()` at the end. `mq.within(5.0)`, `producer.within(5.0)` and so on limit each call to that number of seconds.
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
