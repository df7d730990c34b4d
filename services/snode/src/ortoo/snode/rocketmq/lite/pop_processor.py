"""Pops over lite topics: those of one client, or all of a parent.

Each lite topic is one queue, with at most one leased message.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ortoo.common.errors import OrtooError, Unavailable
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.pop.call import PopCall, PopResult
from ortoo.snode.pop.processor import PopProcessor
from ortoo.snode.pop.watches import PopWatch, WaitingPop
from ortoo.snode.rocketmq.lite.owners import LiteOwners
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscription, LiteSubscriptions
from ortoo.snode.rocketmq.lite.topics import LiteTopics
from ortoo.snode.rocketmq.protocol.names import stored_topic


@dataclass(slots=True, eq=False)
class LitePopProcessor:
    """Pops from lite topics: tries those that may have messages, then waits for all of them."""

    processor: PopProcessor
    lite_topics: LiteTopics
    subscriptions: LiteSubscriptions
    owners: LiteOwners
    watch: DirectoryWatch
    """The directory's watch: lite topics may be created later."""
    runtime: Runtime
    _rotation: int = 0

    async def pop(self, call: PopCall, parent: Topic) -> PopResult:
        """Lease messages to a client; waits for the first message. Changes of the subscription also change the wait.

        Errors: as `PopProcessor.pop`, or GrpcProxyError with ILLEGAL_TOPIC if the group has another parent.
        """
        self.subscriptions.check_parent(call.group, parent.name)
        is_exclusive = self.owners.is_exclusive(call.group)
        deadline_s = self.runtime.clock.monotonic_s() + call.wait_ms / 1000
        found: list[PopResult] = []
        failed: dict[PopWatch, OrtooError] = {}
        try:
            while True:
                subscription = self._subscription(call)
                changed = subscription.changed
                await self.lite_topics.load(parent, subscription.lite_topics)
                queues, missing = self._queues(parent, subscription), self._missing(parent, subscription)
                with self.watch.topic_changes.watching(missing) as created:
                    if is_exclusive:
                        queues = await self._still_owned(call, queues)
                        if changed.is_set() and self.runtime.clock.monotonic_s() < deadline_s:
                            continue
                    await self._pop_or_wait(queues, call, deadline_s, (changed, created), found, failed)
                if found and (changed.is_set() or is_exclusive):
                    current_queues = self._queues(parent, self._subscription(call))
                    found = await self._still_subscribed(
                        found, await self._still_owned(call, current_queues) if is_exclusive else current_queues
                    )
                if found or self.runtime.clock.monotonic_s() >= deadline_s:
                    return await self._limit(found, call)
        except BaseException:
            for answer in found:
                self.runtime.background.run_contained("give back", self.processor.release(answer))
            raise

    async def pop_all(self, call: PopCall, parent: Topic) -> PopResult:
        """Lease messages of all lite topics of a parent, also of those that are created during the wait.

        Errors: as `PopProcessor.pop`, or GrpcProxyError with ILLEGAL_CONSUMER_GROUP if members of the group subscribe
        to single lite topics.
        """
        deadline_s = self.runtime.clock.monotonic_s() + call.wait_ms / 1000
        found: list[PopResult] = []
        failed: dict[PopWatch, OrtooError] = {}
        try:
            while True:
                self.subscriptions.check_plain(call.group)
                await self.lite_topics.load_all(parent)
                with self.watch.topic_changes.watching((parent.name,)) as changed:
                    queues = self._rotate(self.lite_topics.queues(parent))
                    await self._pop_or_wait(queues, call, deadline_s, (changed,), found, failed)
                if found or self.runtime.clock.monotonic_s() >= deadline_s:
                    return await self._limit(found, call)
        except BaseException:
            for answer in found:
                self.runtime.background.run_contained("give back", self.processor.release(answer))
            raise

    async def _pop_or_wait(
        self,
        queues: Sequence[Queue],
        call: PopCall,
        deadline_s: float,
        events: Sequence[asyncio.Event],
        found: list[PopResult],
        failed: dict[PopWatch, OrtooError],
    ) -> None:
        """Add the messages available now to `found`; without one, wait for a message, an event or the deadline."""
        with self.processor.watches.use([self.processor.place(queue, call) for queue in queues]) as watches:
            refusing = await self._pop_available([*zip(queues, watches, strict=True)], call, found)
            if not found and self.runtime.clock.monotonic_s() < deadline_s:
                waited = [watch for watch in watches if watch not in refusing]
                pop = WaitingPop(asyncio.get_running_loop().create_future(), failed=failed)
                failed |= await self.processor.watches.wait(waited, deadline_s, events=events, pop=pop)

    def _missing(self, parent: Topic, subscription: LiteSubscription) -> list[str]:
        """The stored topics of subscribed lite topics that do not exist yet."""
        names = subscription.lite_topics
        return [stored_topic(parent.name, name) for name in names if self.lite_topics.queue(parent, name) is None]

    def _subscription(self, call: PopCall) -> LiteSubscription:
        return self.subscriptions.get_or_create(call.consumer, call.group, call.topic, self.runtime.clock.monotonic_s())

    async def _still_owned(self, call: PopCall, queues: list[Queue]) -> list[Queue]:
        """The queues that the client still owns in an exclusive group. Revokes its other lite topics."""
        own, lost = await self.owners.still_owned(call.group, call.consumer, queues)
        self.subscriptions.revoke(call.consumer, lost)
        return own

    def _queues(self, parent: Topic, subscription: LiteSubscription) -> list[Queue]:
        names = sorted(subscription.lite_topics)
        return self._rotate([q for name in names if (q := self.lite_topics.queue(parent, name)) is not None])

    def _rotate(self, queues: list[Queue]) -> list[Queue]:
        """The queues, beginning with another one at each call, so that none is always the last."""
        self._rotation += 1
        at = self._rotation % len(queues) if queues else 0
        return queues[at:] + queues[:at]

    async def _pop_available(
        self, queues: Sequence[tuple[Queue, PopWatch]], call: PopCall, found: list[PopResult]
    ) -> set[PopWatch]:
        """Add the messages available now to `found`; returns the watches of enodes that refused.

        After a cancellation, `found` has the messages that were popped before it.
        """
        refusals: dict[PopWatch, OrtooError] = {}
        for queue, watch in queues:
            if len(found) >= call.messages_max:
                break
            if watch.is_quiet:
                continue
            try:
                answer = await self.processor.pop(_queue_call(queue, call))
            except Unavailable as error:  # an unreachable enode blocks only its own queues
                watch.on_unreachable(error)
                continue
            except OrtooError as error:
                refusals[watch] = error
                continue
            found += [answer] if answer.batches else []
            if answer.is_empty:
                watch.on_empty(answer.blocked_reason)
        if not found and (final := [error for error in refusals.values() if not error.retriable]):
            raise final[-1]
        return set(refusals)

    async def _still_subscribed(self, found: Sequence[PopResult], queues: Sequence[Queue]) -> list[PopResult]:
        """The answers from `queues`. Answers from queues whose subscription has ended are released."""
        kept: list[PopResult] = []
        for answer in found:
            if all(batch.queue in queues for batch in answer.batches):
                kept.append(answer)
            else:
                await self.processor.release(answer)
        return kept

    async def _limit(self, found: Sequence[PopResult], call: PopCall) -> PopResult:
        """Limit the answers to the requested number of messages, and release the rest."""
        batches = [batch for answer in found for batch in answer.batches]
        if len(batches) > call.messages_max:
            await self.processor.release(PopResult(batches[call.messages_max :]))
        return PopResult(batches[: call.messages_max])


def _queue_call(queue: Queue, call: PopCall) -> PopCall:
    return replace(call, topic=queue.topic, queue=queue, messages_max=1, wait_ms=0, attempt_id="")
