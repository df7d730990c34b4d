"""The content of a topic's queues, read outside any group and compared with the acknowledged messages."""

from collections import Counter
from contextlib import aclosing

from ortoo.client import Client, DataLoss, Queue, Unavailable
from ortoo.verification.simulation.oracle.oracle import Oracle
from ortoo.verification.simulation.oracle.received import NOWHERE
from ortoo.verification.simulation.oracle.sent import SendOutcome, key_of, keys


class StoredTopicContents:
    """Everything that one topic holds."""

    def __init__(self, topic: str) -> None:
        """Start empty; call `read`."""
        self.topic = topic
        self.places: dict[tuple[Queue, int], bytes] = {}
        """Each body by its position."""
        self.lost: list[tuple[Queue, int, int]] = []
        """Ranges that a server calls lost: from and to, exclusive."""
        self.deleted: dict[Queue, int] = {}
        """The begins of queues, where enodes delete messages."""

    async def read(self, client: Client, oracle: Oracle) -> None:
        """Read all queues from their beginning to their end. Errors: Unavailable, NotFound."""
        described = await client.admin.describe_topic(self.topic)
        expected = sum(one.read_queue_count for one in described.topic.placements)
        if len(described.queues) < expected:
            raise Unavailable(f"{expected - len(described.queues)} queues of {self.topic} are away")
        for item in described.queues:
            await self._read_queue(client, oracle, item.queue, item.begin_offset, item.end_offset)

    async def _read_queue(self, client: Client, oracle: Oracle, queue: Queue, begin: int, end: int) -> None:
        at = begin
        if oracle.has_retention:
            self.deleted[queue] = begin
        while at < end:
            try:
                async with aclosing(client.fetch(queue, at, end)) as batches:  # type: ignore[type-var]
                    async for batch in batches:
                        if batch.first_offset != at:
                            oracle.violations.add("G3", f"{queue} continues at {batch.first_offset} where {at} is next")
                        for offset, body in zip(batch.offsets, batch.bodies(), strict=True):
                            self.places[queue, offset] = body
                        at = batch.next_offset
                return
            except DataLoss as loss:
                self.lost.append((queue, at, max(loss.end_offset, at + 1)))
                at = max(loss.end_offset, at + 1)

    def compare(self, oracle: Oracle) -> None:
        """Compare it with the messages sent to the topic."""
        found = Counter(key_of(body) for body in self.places.values())
        if found[None]:
            oracle.violations.add("G3", f"{found[None]} bodies of {self.topic} were never sent")
        sent = oracle.sent.in_topic(self.topic)
        known = {one.key for one in sent}
        if strangers := [key for key in found if key is not None and key not in known]:
            oracle.violations.add("G3", f"{self.topic} holds messages of other topics: {sorted(strangers)[:5]}")
        gone = [
            one for one in sent if self._is_gone(one.queue, one.offset, one.body) and one.outcome is SendOutcome.STORED
        ]
        if gone:
            oracle.violations.add("G1", f"acknowledged in {self.topic} and not there: {keys(gone)}")
        # Damaged bytes may have held a dedup id, or the end of a delayed message.
        kept = [one for one in sent if not oracle.may_have_lost_data(one.queue.enode if one.queue else NOWHERE)]
        if twice := [one for one in kept if one.is_deduplicated and found[one.key] > 1]:
            oracle.violations.add("G4", f"stored more than once in {self.topic}: {keys(twice)}")
        if refused := [one for one in sent if one.outcome is SendOutcome.REFUSED and found[one.key]]:
            oracle.violations.add("G11", f"refused and stored in {self.topic}: {keys(refused)}")
        if hidden := [one for one in kept if one.hidden and found[one.key]]:
            oracle.violations.add("G7", f"recalled or rolled back and stored in {self.topic}: {keys(hidden)}")
        if self.lost and not oracle.damaged:
            oracle.violations.add("G12", f"{self.topic} has losses without a cause: {self.lost[:3]}")

    def _is_gone(self, queue: Queue | None, offset: int, body: bytes) -> bool:
        if queue is None or offset < self.deleted.get(queue, 0) or self.places.get((queue, offset)) == body:
            return False
        return not self.is_lost(queue, offset)

    def is_lost(self, queue: Queue | None, offset: int) -> bool:
        """Whether a server reports that position as lost."""
        return any(queue == where and begin <= offset < end for where, begin, end in self.lost)


async def compare_stored(client: Client, oracle: Oracle, topic: str) -> StoredTopicContents:
    """Read a topic and compare. Errors: Unavailable, NotFound."""
    stored = StoredTopicContents(topic)
    await stored.read(client, oracle)
    stored.compare(oracle)
    return stored
