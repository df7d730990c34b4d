"""The message flow of the demo: sent flights, two consuming groups, the comparison, and progress bars."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ortoo.cli.demo.flights import UNITED
from ortoo.cli.demo.tally import GroupResult, GroupTally, content_hash
from ortoo.client import ConsumerSettings, Message, connect
from ortoo.common.process.background import Background

TOPIC = "flights"
QUEUES = 8
CHUNK_MESSAGES = 2_000
CONSUMERS = 2
"""Number of consumers in each group."""
ARRIVAL_TIMEOUT_S = 60.0
"""Missing messages count as lost after this time without a delivery."""


class FlightProgress:
    """Progress bars for sent and delivered messages; a context manager."""

    def __init__(self, flights: int) -> None:
        """Expect `flights` messages."""
        self._progress = Progress(
            TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        )
        self._sent = self._progress.add_task("sent", total=flights)
        self._delivered = self._progress.add_task("delivered", total=flights)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def sent(self, count: int) -> None:
        """Show the number of sent messages."""
        self._progress.update(self._sent, completed=count)

    def delivered(self, counts: Sequence[int]) -> None:
        """Show the number of delivered messages of each group.

        The bar shows the first group, which gets every flight.
        """
        self._progress.update(self._delivered, completed=counts[0])

    def print_line(self, line: str) -> None:
        """Print a line above the bars."""
        self._progress.console.print(line)


class FlightFlow:
    """Counts sent and received messages. One group gets all flights, the other group only United's flights."""

    def __init__(self) -> None:
        """Start with zero."""
        self.sent: Counter[bytes] = Counter()
        self.body_bytes = 0
        self._sent_united: Counter[bytes] = Counter()
        self._tallies = (GroupTally("delays"), GroupTally("united"))

    def record_sent(self, chunk: Sequence[Message]) -> None:
        """Count messages that are being sent."""
        for message in chunk:
            content = content_hash(message.body, message.tag, tuple(message.keys))
            self.sent[content] += 1
            if message.tag == UNITED:
                self._sent_united[content] += 1
            self.body_bytes += len(message.body)

    def consume(self, background: Background, addresses: str | Sequence[str]) -> None:
        """Start both groups, which receive through the snodes at `addresses` until `background` ends."""
        for tally, tags in zip(self._tallies, ("*", UNITED), strict=True):
            for _ in range(CONSUMERS):
                background.spawn(tally.group, _consume(addresses, tally, tags))

    async def wait_all_arrived(self, progress: FlightProgress) -> None:
        """Wait until both groups have received everything, or until messages have stopped arriving."""
        for tally, expected in zip(self._tallies, (self.sent, self._sent_united), strict=True):
            while tally.delivered < expected.total():
                tally.changed.clear()
                progress.delivered([tally.delivered for tally in self._tallies])
                try:
                    async with asyncio.timeout(ARRIVAL_TIMEOUT_S):
                        await tally.changed.wait()
                except TimeoutError:
                    return
        progress.delivered([tally.delivered for tally in self._tallies])

    def verdicts(self) -> tuple[GroupResult, ...]:
        """The result of comparing each group's received messages with the expected messages."""
        expected = (self.sent, self._sent_united)
        return tuple(tally.result(want) for tally, want in zip(self._tallies, expected, strict=True))


async def _consume(addresses: str | Sequence[str], tally: GroupTally, tags: str) -> None:
    settings = ConsumerSettings(from_beginning=True)
    async with connect(addresses) as mq, mq.consumer(tally.group, {TOPIC: tags}, settings) as consumer:
        async for batch in consumer.batches():
            queue = batch.queue
            for offset, message in zip(batch.offsets, batch.messages(), strict=True):
                content = content_hash(message.body, message.tag, tuple(message.keys))
                tally.received((queue.topic, queue.enode, queue.queue_id, offset), content)
            batch.ack()
            tally.changed.set()
