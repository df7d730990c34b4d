"""The store: one log, and the queues, offsets and topics that are folds over it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ortoo.common.clock import Clock
from ortoo.common.randomness import Randomness
from ortoo.common.sealed_batch import SealedBatch
from ortoo.enode.answers import (
    Appended,
    Damage,
    DamagedQueue,
    Fetched,
    QueueRange,
    StoredBatch,
    StoreDescription,
    TopicCopy,
)
from ortoo.enode.disk import Disk
from ortoo.enode.store_settings import FlushMode, StoreSettings

__all__ = [
    "Appended",
    "Damage",
    "DamagedQueue",
    "Fetched",
    "FlushMode",
    "QueueRange",
    "Store",
    "StoreDescription",
    "StoreSettings",
    "StoredBatch",
    "TopicCopy",
]


class Store:
    """One open store. All methods belong to the event loop that opened it; none blocks it."""

    @classmethod
    async def open(
        cls, folder: Path, *, settings: StoreSettings, disk: Disk, clock: Clock, randomness: Randomness
    ) -> "Store":
        """Open the store in `folder`, making it if there is none, and recover it if it was not closed.

        Errors: Conflict when another process has the folder open, or when the store belongs to another cluster or
        enode; Unsupported when its format is newer; DataLoss when what is needed to start is damaged, naming file
        and position; Invalid when the settings cannot work.
        """
        raise NotImplementedError

    async def append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, *, flush_mode: FlushMode = FlushMode.DEFAULT
    ) -> Appended:
        """Store one batch; the caller has run `batch.check()`. Returns when `flush_mode` says so.

        Batches of one queue get their offsets in the order of the calls. Cancelling the caller does not cancel an
        accepted append. A batch with a producer id that was stored before answers its first place.
        Errors: NotFound (field "topic_id", "queue_id", or "batch.producer_id" for a forgotten producer); Invalid
        (field "batch.first_sequence": overlaps an earlier batch); Conflict (the sequence was used for other bytes, or
        too long ago to know its offset); Unavailable (a gap in the sequence: nothing stored, send the missing batch
        first); Overloaded (disk full, too much waiting: nothing stored); Unavailable (the disk failed or the store is
        closing: the outcome is unknown).
        """
        raise NotImplementedError

    async def fetch(
        self, topic_id: int, queue_id: int, from_offset: int, *, bytes_max: int = 0, wait_ms: int = 0
    ) -> Fetched:
        """Read whole batches from `from_offset` on; the first may start before it. At the end, wait for more.

        At least one batch is given if there is one; further ones while they fit `bytes_max` (0 = 1 MiB). A topic
        queue that exists and is empty has the range 0 to 0. After `wait_ms` at the end the answer is empty.
        Errors: NotFound (field "topic_id" or "queue_id"); OutOfRange with begin and end when `from_offset` lies
        outside begin..end; DataLoss when the batch at `from_offset` is damaged, saying where reading can go on;
        Overloaded when too many wait.
        """
        raise NotImplementedError

    async def commit_offsets(
        self, topic_id: int, group: str, offsets: Mapping[int, int], generation: int = 0
    ) -> None:
        """Store how far `group` has consumed each queue (queue id to next offset). Returns when it is durable.

        A smaller offset than stored wins. `generation` 0 is not compared; otherwise one that is older than the queue's
        stored one is refused and nothing is stored.
        Errors: NotFound, Invalid (negative offset), Fenced (older generation), Overloaded, Unavailable.
        """
        raise NotImplementedError

    def query_offsets(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, int]:
        """Committed offsets of `group`, queue id to next offset; queues without one are absent. Empty ids = all.

        Errors: NotFound for an unknown topic.
        """
        raise NotImplementedError

    def offset_groups(self, topic_id: int) -> list[str]:
        """Groups that have an offset in this topic, sorted."""
        raise NotImplementedError

    def describe_queues(self, topic_id: int) -> list[QueueRange]:
        """All queues of a topic, in order of queue id. Errors: NotFound."""
        raise NotImplementedError

    async def find_offset(self, topic_id: int, queue_id: int, stored_at_ms: int) -> int:
        """The first offset stored at or after a time; the queue's end if there is none. Errors: NotFound."""
        raise NotImplementedError

    def describe(self) -> StoreDescription:
        """Sizes, positions, health, damages."""
        raise NotImplementedError

    async def put_topics(self, topics: Sequence[TopicCopy]) -> None:
        """Store copies of topics; returns when they are durable. A copy older than the stored one changes nothing."""
        raise NotImplementedError

    async def delete_topics(self, topic_ids: Iterable[int]) -> None:
        """Forget topics, their queues and the groups' offsets in them; unknown ids are passed over."""
        raise NotImplementedError

    def topics(self) -> list[TopicCopy]:
        """All topic copies, by topic id."""
        raise NotImplementedError

    async def close(self) -> None:
        """Flush, leave the marker of a clean stop, give the folder back. Waiting fetches answer empty. Idempotent."""
        raise NotImplementedError
