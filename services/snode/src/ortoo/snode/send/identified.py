"""Messages with ids that applications chose: sent until it is known that they are stored, once."""

from collections.abc import Sequence

from ortoo.common.errors import OrtooError
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.enodes.pool import EnodeLinks, explained
from ortoo.snode.send.receipt import Receipt, receipt_of

DEDUP_ID = "DEDUP_ID"
"""The property with which an application says which messages are the same one."""
ID_BYTES_MAX = 255


class IdentifiedSending:
    """Sends them to the enodes, which remember their ids; sending again does no harm."""

    def __init__(self, links: EnodeLinks, *, timeout_s: float, clock: Clock, randomness: Randomness) -> None:
        """Try for `timeout_s`."""
        self._links = links
        self._timeout_s = timeout_s
        self._clock = clock
        self._randomness = randomness

    async def store(self, topic: Topic, queue: Queue, messages: Sequence[Message]) -> list[Receipt]:
        """Store messages that were checked; a receipt each. Errors: as the enode says; Unavailable: outcome unknown."""
        batch = encode(messages, now_ms=self._clock.now_ms())
        ids = [message.properties[DEDUP_ID] for message in messages]
        deadline_s = self._clock.monotonic_s() + self._timeout_s
        backoff, attempt = Backoff(first_s=0.02, max_s=0.5), 0
        while True:
            try:
                link = self._links.to(queue.enode)
                places = await link.append_identified(topic.topic_id, queue.queue_id, batch, ids)
            except OrtooError as error:
                reason = explained(error)
                delay_s = backoff.delay_s(attempt, self._randomness)
                if not reason.retriable or self._clock.monotonic_s() + delay_s >= deadline_s:
                    raise reason from None
                await self._clock.sleep(delay_s)
                attempt += 1
            else:
                return [
                    receipt_of(
                        topic, queue._replace(queue_id=place.queue_id), message, place.offset, duplicate=place.duplicate
                    )
                    for message, place in zip(messages, places, strict=True)
                ]
