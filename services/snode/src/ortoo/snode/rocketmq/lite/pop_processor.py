"""Pops over the lite topics of one client: each is a separate queue with at most one leased message."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.pop.processor import PopAnswer, PopCall, Popping, tried
from ortoo.snode.rocketmq.lite.owners import LiteOwners
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscription, LiteSubscriptions
from ortoo.snode.rocketmq.lite.topics import LiteTopics


@dataclass(slots=True, eq=False)
class LitePopping:
    """Checks all of a client's lite topics in turn, then waits at all of them."""

    popping: Popping
    lite_topics: LiteTopics
    subscriptions: LiteSubscriptions
    owners: LiteOwners
    watch: DirectoryWatch
    """The directory's watch: a subscribed lite topic may be created later."""
    runtime: Runtime
    _turn: int = 0

    async def pop(self, call: PopCall, parent: Topic) -> PopAnswer:
        """Lease messages to a client, waiting for the first. Changes of its subscription count at once.

        Errors: as `Popping`, or Refused with ILLEGAL_TOPIC if the group has another parent.
        """
        self.subscriptions.check_parent(call.group, parent.name)
        exclusive = self.owners.counts(call.group)
        deadline_s = self.runtime.clock.monotonic_s() + call.wait_ms / 1000
        found: list[PopAnswer] = []
        try:
            while True:
                subscription, topics_changed = self._subscription(call), self.watch.changed
                changed = subscription.changed
                queues = self._queues(parent, subscription)
                if exclusive:
                    queues = await self._owned(call, queues)
                    if changed.is_set() and self.runtime.clock.monotonic_s() < deadline_s:
                        continue
                await self._look(queues, call, found)
                wait_s = deadline_s - self.runtime.clock.monotonic_s()
                if not found and wait_s > 0:
                    events = [changed, *([topics_changed] if len(queues) < len(subscription.lite_topics) else [])]
                    await self._wait(queues, replace(call, wait_ms=int(wait_s * 1000) + 1), events, found)
                if found and (changed.is_set() or exclusive):
                    wanted = self._queues(parent, self._subscription(call))
                    found = await self._still_wanted(found, await self._owned(call, wanted) if exclusive else wanted)
                if found or self.runtime.clock.monotonic_s() >= deadline_s:
                    return await self._cut(found, call)
        except BaseException:
            for answer in found:
                self.runtime.background.contained("give back", self.popping.release(answer))
            raise

    def _subscription(self, call: PopCall) -> LiteSubscription:
        return self.subscriptions.of(call.consumer, call.group, call.topic, self.runtime.clock.monotonic_s())

    async def _owned(self, call: PopCall, queues: list[Queue]) -> list[Queue]:
        """For an exclusive group: the queues that the client still owns."""
        own, lost = await self.owners.kept(call.group, call.consumer, queues)
        self.subscriptions.lose(call.consumer, lost)
        return own

    def _queues(self, parent: Topic, subscription: LiteSubscription) -> list[Queue]:
        names = sorted(subscription.lite_topics)
        queues = [queue for name in names if (queue := self.lite_topics.queue(parent, name)) is not None]
        self._turn += 1
        at = self._turn % len(queues) if queues else 0
        return queues[at:] + queues[:at]

    async def _look(self, queues: Sequence[Queue], call: PopCall, found: list[PopAnswer]) -> None:
        """Add the messages available now to `found`, which stays the caller's if this is cancelled."""
        failure: OrtooError | None = None
        for queue in queues:
            if len(found) >= call.messages_max:
                break
            try:
                answer = await self.popping.pop(_one_of(queue, call, wait_ms=0))
            except OrtooError as error:  # an unreachable enode blocks only its own queues
                failure = error
                continue
            found += [answer] if answer.batches else []
        if failure is not None and not found and not failure.retriable:
            raise failure

    async def _wait(
        self, queues: Sequence[Queue], call: PopCall, events: Sequence[asyncio.Event], found: list[PopAnswer]
    ) -> None:
        """Add the first messages that arrive to `found`; nothing after the timeout or when an event is set."""
        calls = [_one_of(queue, call, wait_ms=call.wait_ms) for queue in queues]
        # These are tasks, not futures of them: a cancelled pop must notice it at once, or its messages would be lost.
        pops = [self.runtime.background.contained("lite pop", tried(self.popping.pop(one))) for one in calls]
        changes = [self.runtime.background.asked("lite change", event.wait()) for event in events]
        clock = self.runtime.background.asked("lite deadline", self.runtime.clock.sleep(call.wait_ms / 1000))
        try:
            others: list[asyncio.Future[Any]] = [*changes, clock]
            waiting: set[asyncio.Future[Any]] = {*others, *pops}
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                brought = [_result(pop) for pop in pops if pop in done]
                if any(answer is not None and answer.batches for answer in brought) or not done.isdisjoint(others):
                    break
        finally:
            found += [answer for pop in pops if (answer := _result(pop)) is not None and answer.batches]
            waiting_for: list[asyncio.Future[Any]] = [*changes, clock, *pops]
            for task in waiting_for:
                task.cancel()

    async def _still_wanted(self, found: Sequence[PopAnswer], queues: Sequence[Queue]) -> list[PopAnswer]:
        """The answers of these queues; others are of ended subscriptions and are released."""
        kept: list[PopAnswer] = []
        for answer in found:
            if all(batch.queue in queues for batch in answer.batches):
                kept.append(answer)
            else:
                await self.popping.release(answer)
        return kept

    async def _cut(self, found: Sequence[PopAnswer], call: PopCall) -> PopAnswer:
        """At most the requested number of messages; several may have arrived at once, and the rest is released."""
        batches = [batch for answer in found for batch in answer.batches]
        if len(batches) > call.messages_max:
            await self.popping.release(PopAnswer(batches[call.messages_max :]))
        return PopAnswer(batches[: call.messages_max])


def _one_of(queue: Queue, call: PopCall, *, wait_ms: int) -> PopCall:
    return replace(call, topic=queue.topic, queue=queue, messages_max=1, wait_ms=wait_ms, attempt_id="")


def _result(pop: "asyncio.Future[PopAnswer | OrtooError]") -> PopAnswer | None:
    found = pop.result() if pop.done() and not pop.cancelled() else None
    return found if isinstance(found, PopAnswer) else None
