"""Resets with missing queues, or an enode that fails in between."""

from collections.abc import Sequence
from typing import Any

import pytest

from ortoo.common.directory.topic import Permission, Placement
from ortoo.common.errors import Invalid, Unavailable
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.enodes.link import OffsetRow, QueueRange
from ortoo.snode.pull.offsets import OffsetOperations, OffsetTarget

TOPIC = Topic("t", 77, 1, Permission.READ_WRITE, (Placement("a", 1, 1), Placement("b", 1, 1)))
A, B = Queue("t", "a", 0), Queue("t", "b", 0)


class Cluster:
    """A topic with a queue of ten messages on each of two enodes, of which a group has consumed eight."""

    def __init__(self) -> None:
        self.stored = {"a": 8, "b": 8}
        self.away = ""
        """An enode that stores nothing."""

    def moves(self) -> OffsetOperations:
        """The operations of operators."""
        cluster: Any = self
        return OffsetOperations(cluster, cluster, cluster)

    async def topic(self, name: str) -> Topic:
        """As the directory."""
        return TOPIC

    async def all_queue_ranges(self, topic: Topic, refusal: str) -> dict[Queue, QueueRange]:
        """As the readers."""
        return {queue: QueueRange(0, 2, 10) for queue in (A, B)}

    def to(self, enode: str) -> "Link":
        """As the links."""
        return Link(self, enode)


class Link:
    """One enode of it."""

    def __init__(self, cluster: Cluster, enode: str) -> None:
        self.cluster, self.enode = cluster, enode

    async def query_offsets(self, topic_id: int, group: str) -> dict[int, int]:
        """The stored offset."""
        return {0: self.cluster.stored[self.enode]}

    async def commit_offsets(self, topic_id: int, group: str, rows: Sequence[OffsetRow], *, reset: bool) -> list[int]:
        """Store, or be unreachable."""
        if self.enode == self.cluster.away:
            raise Unavailable(f"{self.enode} is away")
        self.cluster.stored[self.enode] = rows[0][1]
        return []


async def test_a_reset_that_came_half_way_says_how_far_and_can_be_asked_for_again() -> None:
    """One of several enodes may fail in between. The error must not claim that nothing was moved."""
    cluster = Cluster()
    cluster.away = "b"
    with pytest.raises(Unavailable, match="on a were moved, those on b were not: b is away, retry"):
        await cluster.moves().reset("g", "t", OffsetTarget(offset=5), force=False)
    assert cluster.stored == {"a": 5, "b": 8}
    cluster.away = ""
    await cluster.moves().reset("g", "t", OffsetTarget(offset=5), force=False)
    assert cluster.stored == {"a": 5, "b": 5}


@pytest.mark.parametrize("wrong", [Queue("t", "a", 9), Queue("t", "nowhere", 0), Queue("other", "a", 0)])
async def test_a_reset_of_a_queue_that_is_not_there_is_refused_by_name(wrong: Queue) -> None:
    """E-192: no queue is skipped silently, and nothing is moved."""
    cluster = Cluster()
    with pytest.raises(Invalid, match=str(wrong)) as refused:
        await cluster.moves().reset("g", "t", OffsetTarget(offsets={A: 3, wrong: 3}), force=True)
    assert refused.value.field == "offsets.starts.queue"
    assert cluster.stored == {"a": 8, "b": 8}
