"""The Ortoo SDK: producers and consumers.

async with ortoo.client.connect("localhost:8081") as mq:
async with mq.producer("orders") as producer:
receipt = await producer.send(Message(b"hello"))
"""

from ortoo.client.client import Client, connect
from ortoo.client.consumer import Consumer, ConsumerSettings
from ortoo.client.parcel import Sending, Sendings
from ortoo.client.place import Queue, Receipt
from ortoo.client.producer import Producer, ProducerSettings
from ortoo.client.received import ReceivedBatch, ReceivedMessage
from ortoo.common.message import Message

__all__ = [
    "Client",
    "Consumer",
    "ConsumerSettings",
    "Message",
    "Producer",
    "ProducerSettings",
    "Queue",
    "Receipt",
    "ReceivedBatch",
    "ReceivedMessage",
    "Sending",
    "Sendings",
    "connect",
]
