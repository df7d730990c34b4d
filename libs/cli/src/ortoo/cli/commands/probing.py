"""`ortoo probe`: how long a message takes to be stored and read again, at each enode of a topic."""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ortoo.cli.terminal.command import TopicName
from ortoo.cli.terminal.output import Answer, Columns, Table
from ortoo.common.errors import DataLoss

if TYPE_CHECKING:
    from ortoo.client import Client

TAG = "ortoo-probe"


class Probed(NamedTuple):
    """One message's way."""

    enode: str
    queue_id: int
    offset: int
    stored_ms: float
    """From the send to its acknowledgement."""
    read_ms: float
    """From then until it was read where it lies."""


async def probe(
    mq: "Client",
    topic: TopicName,
    count: Annotated[int, typer.Option("-n", min=1, max=1000, help="How many messages, one after another.")] = 4,
    tag: Annotated[str, typer.Option(help="Their tag, so that groups can leave them out.")] = TAG,
) -> Answer:
    """Send real messages to a topic, read each back, and show how long both took. Groups of the topic get them too."""
    from ortoo.client import Message
    from ortoo.common.process.clock import SystemClock

    clock = SystemClock()
    probed = []
    async with mq.producer(topic) as producer:
        for number in range(count):
            begun_s = clock.monotonic_s()
            receipt = await producer.send(Message(b"probe %d" % number, tag))
            stored_s = clock.monotonic_s()
            found = mq.fetch(receipt.queue, receipt.offset, receipt.offset + 1)
            if b"probe %d" % number not in [one.body async for batch in found for one in batch]:
                raise DataLoss(f"{receipt.queue} does not show at offset {receipt.offset} what was stored there")
            read_s = clock.monotonic_s()
            place = (receipt.queue.enode, receipt.queue.queue_id, receipt.offset)
            probed.append(Probed(*place, round((stored_s - begun_s) * 1000, 1), round((read_s - stored_s) * 1000, 1)))
    columns: Columns = {
        "ENODE": "enode",
        "QUEUE": "queue_id",
        "OFFSET": "offset",
        "STORED MS": "stored_ms",
        "READ MS": "read_ms",
    }
    return Answer([one._asdict() for one in probed], Table(columns, probed))
