"""Planted: committed offsets that are lost, or that exceed the processed messages."""

from typing import Any

from ortoo.snode.push import feeder, offset_commits


def committed_in_memory_only() -> None:
    """G10: the snode reports offsets as durable that it sent to no enode."""

    async def drain(self: Any) -> None:
        while self._pending:
            done, self._pending = self._pending, {}
            await self.clock.sleep(0.001)
            for queue, (offset, generation, _) in done.items():
                self.on_durable(queue, offset, generation)
        self._end_round()

    offset_commits.OffsetCommitBatcher.drain = drain  # type: ignore[method-assign]


def committed_one_too_far() -> None:
    """G2: each acknowledgement moves the group one message too far."""
    put = offset_commits.OffsetCommitBatcher.put

    def further(self: Any, queue: Any, offset: int, generation: int, fence: int = 0) -> None:
        put(self, queue, offset + 1, generation, fence)

    offset_commits.OffsetCommitBatcher.put = further  # type: ignore[method-assign]


def queues_begin_at_their_end() -> None:
    """G2: after a rebalance a queue begins at its end."""
    start = feeder.Feeder._set_start_offset

    async def at_end(self: Any) -> None:
        await start(self)
        if self.cursor.committed_offset:
            ranges = await self.context.links.to(self.cursor.queue.enode).describe_queues(self.topic_id)
            end = next(one.end_offset for one in ranges if one.queue_id == self.cursor.queue.queue_id)
            self.cursor.start(max(end, self.cursor.next_offset), is_committed=True)

    feeder.Feeder._set_start_offset = at_end  # type: ignore[method-assign]
