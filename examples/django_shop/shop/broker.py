"""The connection of this process to the message queue.

It is opened at the first use. A server that forks its workers, such as gunicorn, therefore opens one in each worker.
"""

from functools import cache

from django.conf import settings

from ortoo.client.blocking import connect
from ortoo.client.blocking.client import BlockingClient, BlockingProducer

TOPIC = "orders"


@cache
def client() -> BlockingClient:
    """The client of this process."""
    return connect(settings.ORTOO_ADDRESS)


@cache
def orders() -> BlockingProducer:
    """The producer of this process; threads may share it."""
    return client().producer(TOPIC)
