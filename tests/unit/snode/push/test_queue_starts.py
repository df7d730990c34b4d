"""The requests that queues share when they start: each queue gets its own outcome."""

import asyncio
from collections.abc import Sequence

from ortoo.common.errors import Fenced, Invalid
from ortoo.common.groups.sinks import SinkIdentity
from ortoo.common.process.background import Background
from ortoo.enode.store.lock_table import LockRequest
from ortoo.snode.enodes.link import OffsetRow
from ortoo.snode.push.queue_starts import QueueStarts
from ortoo.verification.time.virtual_time import in_virtual_time, running_clock
from tests.unit.snode.fake_enode import TOPIC, FakeEnode


class StrictEnode(FakeEnode):
    """It refuses a request that names a queue twice, as an enode does."""

    async def commit_offsets(
        self,
        topic_id: int,
        group: str,
        rows: Sequence[OffsetRow],
        *,
        reset: bool = False,
        forward_only: bool = False,
        sink: SinkIdentity | None = None,
    ) -> list[int]:
        """Errors: Invalid for a repeated queue."""
        if len({queue_id for queue_id, _, _ in rows}) != len(rows):
            raise Invalid("a queue is named twice", field="offsets")
        return await super().commit_offsets(topic_id, group, rows, reset=reset)

    def lock(self, queue_id: int, session: str) -> int:
        """The generation of the queue's lock after `session` has taken it."""
        key = (TOPIC.topic_id, "g", queue_id)
        if self.locks.get(key) is not None:
            self.locks.fence(key, 0)
        else:
            self.locks.take(LockRequest(key, "c", session), 0.0, generation_above=0)
        return self.locks.generation(key)


@in_virtual_time
async def test_a_queue_that_returns_during_a_request_delays_no_other_queue() -> None:
    """The row of a revoked queue waits for the next request, and the queue's new row joins it. The newer row counts."""
    enode = StrictEnode()
    async with asyncio.timeout(60), Background("test") as background:
        starts = QueueStarts(enode.links(), background, "e", TOPIC.topic_id, "g")
        fences = [enode.lock(queue_id, "s") for queue_id in range(3)]
        enode.gate.clear()
        first = background.spawn("first", starts.commit(0, 5, fences[0]))
        await enode.arrived.wait()
        revoked = background.spawn("revoked", starts.commit(1, 6, fences[1]))
        await running_clock().sleep(0.001)
        revoked.cancel()
        again = background.spawn("again", starts.commit(1, 7, enode.lock(1, "s2")))
        other = background.spawn("other", starts.commit(2, 8, fences[2]))
        await running_clock().sleep(0.001)
        enode.gate.set()
        await asyncio.gather(first, again, other)
    assert enode.commits == [{0: 5}, {1: 7, 2: 8}]


@in_virtual_time
async def test_only_the_queue_with_a_refused_generation_is_fenced() -> None:
    """Its feeder must not continue, because its group does not subscribe to the queue yet."""
    enode = StrictEnode()
    async with asyncio.timeout(60), Background("test") as background:
        starts = QueueStarts(enode.links(), background, "e", TOPIC.topic_id, "g")
        stale, current = enode.lock(0, "s"), enode.lock(1, "s")
        enode.lock(0, "another")
        outcomes = await asyncio.gather(
            starts.commit(0, 5, stale), starts.commit(1, 6, current), return_exceptions=True
        )
    assert isinstance(outcomes[0], Fenced)
    assert outcomes[1] is None
    assert enode.offsets == {("g", 1): 6}
