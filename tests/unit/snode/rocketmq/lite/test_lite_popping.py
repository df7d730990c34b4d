"""Changes of a waiting client's subscription count at once."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ortoo.common.groups.pop import AwaitRequest
from ortoo.common.process.background import Background
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.cluster.topic_changes import TopicChanges
from ortoo.snode.pop.call import PopCall, PopResult
from ortoo.snode.pop.watches import PopWatches
from ortoo.snode.rocketmq.lite.pop_processor import LitePopProcessor
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscriptions
from ortoo.verification.time.virtual_clock import VirtualClock

A, B = Queue("t/a", "enode-0", 0), Queue("t/b", "enode-0", 0)


@dataclass(frozen=True)
class Leased:
    """A message's lease; only its queue matters here."""

    queue: Queue


@dataclass
class Pops:
    """Has a message in each queue, and lets the client unsubscribe from `a` while it answers for the first time."""

    subscriptions: LiteSubscriptions
    watches: PopWatches
    asked: list[Queue] = field(default_factory=list)
    released: list[Queue] = field(default_factory=list)

    async def pop(self, call: PopCall) -> PopResult:
        """One message of the queue."""
        assert call.queue is not None
        if not self.asked:
            self.subscriptions.set_lite_topics(
                self.subscriptions.get_or_create("c", "g", "t", 0.0), frozenset("b"), 0.0
            )
        self.asked.append(call.queue)
        return PopResult([Leased(call.queue)], is_empty=False)  # type: ignore[list-item]

    def place(self, queue: Queue, call: PopCall) -> tuple[str, AwaitRequest]:
        """The wait for messages of the queue."""
        return queue.enode, AwaitRequest(ord(queue.topic[-1]), call.group, (queue.queue_id,))

    async def release(self, answer: PopResult) -> None:
        """Release."""
        self.released += [one.queue for one in answer.batches]


class Owners:
    """No group is exclusive."""

    def is_exclusive(self, group: str) -> bool:
        """Whether lite topics are exclusive."""
        return False


class LiteQueues:
    """Has both lite topics."""

    async def load(self, parent: Any, lite_topics: Any) -> None:
        """All are known."""

    def queue(self, parent: Any, lite_topic: str) -> Queue:
        """Its queue."""
        return {"a": A, "b": B}[lite_topic]


async def test_a_lite_topic_left_during_a_look_is_not_received_from() -> None:
    """Its message is released without counting an attempt; those of other lite topics are returned."""
    subscriptions = LiteSubscriptions()
    known = subscriptions.get_or_create("c", "g", "t", 0.0)
    subscriptions.set_lite_topics(known, frozenset("ab"), 0.0)
    topics, parent = LiteQueues(), SimpleNamespace(name="t")
    async with Background("test") as background:
        runtime: Any = SimpleNamespace(background=background, clock=VirtualClock())
        links: Any = None  # a queue with messages is not quiet
        pops = Pops(subscriptions, PopWatches(links, runtime))
        watch = SimpleNamespace(topic_changes=TopicChanges())
        lite: Any = LitePopProcessor(pops, topics, subscriptions, Owners(), watch, runtime)  # type: ignore[arg-type]
        answer = await lite.pop(PopCall("g", "t", 8, 1000, 0, "c"), parent)
    assert set(pops.asked) == {A, B}
    assert [one.queue for one in answer.batches] == [B]
    assert pops.released == [A]
