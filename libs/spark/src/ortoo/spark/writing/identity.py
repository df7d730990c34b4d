"""Who sends: the ids by which an enode recognises a batch that comes again."""

import hashlib
from dataclasses import dataclass

from ortoo.common.process.randomness import Randomness


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """One task of one batch of one query, the same for every attempt; or, with a nonce, one attempt alone."""

    sink: str
    """The sink's id, or the query's, or the job's."""
    batch_id: int
    partition_id: int
    nonce: str = ""

    @classmethod
    def of_attempt(cls, randomness: Randomness) -> "TaskIdentity":
        """An identity that nobody has again."""
        return cls("", 0, 0, randomness.id_text() + randomness.id_text())

    def producer_id(self, lane: str) -> int:
        """The producer id under which the rows of one lane travel: 64 bits, never 0."""
        text = "\x1f".join((self.sink, str(self.batch_id), str(self.partition_id), self.nonce, lane))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") or 1

    def number(self) -> int:
        """A number to begin with among queues, the same for every attempt."""
        return self.producer_id("queue") >> 1
