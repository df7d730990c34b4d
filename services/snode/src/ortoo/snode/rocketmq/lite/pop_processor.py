"""Pops over the lite topics of one client. Each lite topic is one queue, with at most one leased message."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.pop.call import PopCall, PopResult
from ortoo.snode.pop.processor import PopProcessor, pop_or_error
from ortoo.snode.rocketmq.lite.owners import LiteOwners
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscription, LiteSubscriptions
from ortoo.snode.rocketmq.lite.topics import LiteTopics


@dataclass(slots=True, eq=False)
class LitePopProcessor:
    """Pops from all lite topics of a client: tries one after another, then waits at all of them."""

    processor: PopProcessor
    lite_topics: LiteTopics
    subscriptions: LiteSubscriptions
    owners: LiteOwners
    watch: DirectoryWatch
    """The directory's watch: a subscribed lite topic may be created later."""
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
        try:
            while True:
                subscription, topics_changed = self._subscription(call), self.watch.changed
                changed = subscription.changed
                queues = self._queues(parent, subscription)
                if is_exclusive:
                    queues = await self._still_owned(call, queues)
                    if changed.is_set() and self.runtime.clock.monotonic_s() < deadline_s:
                        continue
                await self._pop_available(queues, call, found)
                wait_s = deadline_s - self.runtime.clock.monotonic_s()
                if not found and wait_s > 0:
                    events = [changed, *([topics_changed] if len(queues) < len(subscription.lite_topics) else [])]
                    await self._wait_for_messages(queues, replace(call, wait_ms=int(wait_s * 1000) + 1), events, found)
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

    def _subscription(self, call: PopCall) -> LiteSubscription:
        return self.subscriptions.get_or_create(call.consumer, call.group, call.topic, self.runtime.clock.monotonic_s())

    async def _still_owned(self, call: PopCall, queues: list[Queue]) -> list[Queue]:
        """The queues that the client still owns in an exclusive group. Revokes its other lite topics."""
        own, lost = await self.owners.still_owned(call.group, call.consumer, queues)
        self.subscriptions.revoke(call.consumer, lost)
        return own

    def _queues(self, parent: Topic, subscription: LiteSubscription) -> list[Queue]:
        names = sorted(subscription.lite_topics)
        queues = [queue for name in names if (queue := self.lite_topics.queue(parent, name)) is not None]
        self._rotation += 1
        at = self._rotation % len(queues) if queues else 0
        return queues[at:] + queues[:at]

    async def _pop_available(self, queues: Sequence[Queue], call: PopCall, found: list[PopResult]) -> None:
        """Add the messages available now to `found`. After a cancellation, `found` has those popped before it."""
        failure: OrtooError | None = None
        for queue in queues:
            if len(found) >= call.messages_max:
                break
            try:
                answer = await self.processor.pop(_queue_call(queue, call, wait_ms=0))
            except OrtooError as error:  # an unreachable enode blocks only its own queues
                failure = error
                continue
            found += [answer] if answer.batches else []
        if failure is not None and not found and not failure.retriable:
            raise failure

    async def _wait_for_messages(
        self, queues: Sequence[Queue], call: PopCall, events: Sequence[asyncio.Event], found: list[PopResult]
    ) -> None:
        """Wait for messages and add them to `found`. Returns without any at the timeout or when an event is set."""
        calls = [_queue_call(queue, call, wait_ms=call.wait_ms) for queue in queues]
        # These are tasks, not futures of them: a cancelled pop must notice it at once, or its messages would be lost.
        pops = [
            self.runtime.background.run_contained("lite pop", pop_or_error(self.processor.pop(one))) for one in calls
        ]
        changes = [self.runtime.background.start_future("lite change", event.wait()) for event in events]
        clock = self.runtime.background.start_future("lite deadline", self.runtime.clock.sleep(call.wait_ms / 1000))
        try:
            others: list[asyncio.Future[Any]] = [*changes, clock]
            waiting: set[asyncio.Future[Any]] = {*others, *pops}
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                results = [_result_of(pop) for pop in pops if pop in done]
                if any(answer is not None and answer.batches for answer in results) or not done.isdisjoint(others):
                    break
        finally:
            found += [answer for pop in pops if (answer := _result_of(pop)) is not None and answer.batches]
            waiting_for: list[asyncio.Future[Any]] = [*changes, clock, *pops]
            for task in waiting_for:
                task.cancel()

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


def _queue_call(queue: Queue, call: PopCall, *, wait_ms: int) -> PopCall:
    return replace(call, topic=queue.topic, queue=queue, messages_max=1, wait_ms=wait_ms, attempt_id="")


def _result_of(pop: "asyncio.Future[PopResult | OrtooError]") -> PopResult | None:
    found = pop.result() if pop.done() and not pop.cancelled() else None
    return found if isinstance(found, PopResult) else None
