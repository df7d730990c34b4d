"""Pops over all queues of a topic on all enodes, and ack, nack and release of the popped messages."""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import replace

from ortoo.common.errors import Conflict, OrtooError, Unavailable
from ortoo.common.groups.pop import (
    Finish,
    LeasePart,
    LeaseVerdict,
    Popped,
    PoppedBatch,
    PopRequest,
    PopRules,
    Redeliver,
    ranges_of,
)
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.containment import as_ortoo_error
from ortoo.snode import log_events
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.routes import DeliveryMode, MessageType, Placement, Queue, Topic
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.membership.group_filters import GroupFilters
from ortoo.snode.observe.traffic import Traffic
from ortoo.snode.pop.call import PopCall, PoppedMessages, PopResult, PopSource
from ortoo.snode.pop.filtering import filter_popped
from ortoo.snode.pop.finish_batchers import FinishBatchers
from ortoo.snode.pop.lease_release import LeaseReleaser
from ortoo.snode.pop.receipt_handle import ReceiptHandle
from ortoo.snode.topics import TopicComponents
from ortoo.snode.topics.creation import dead_letter_topic, retry_topic

FILTER_FACTOR = 8
"""Maximum of messages that one pop examines for each requested message."""
MESSAGES_MAX = 1_024
FINISH = Finish()
OTHERS_DELAY_MS = 1_000
"""The delay after which a message that other members' filters select is popped again."""
OTHERS_PAUSE_S = 0.2
"""The pause of a consumer that popped only such messages, so that it does not pop a whole backlog repeatedly."""
_log = get_logger("pops")


class PopProcessor:
    """Pops messages for consumers, and settles them. It has no durable state, because enodes store the leases."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: ClusterView,
        links: EnodeLinks,
        topics: TopicComponents,
        traffic: Traffic,
        filters: GroupFilters,
    ) -> None:
        self._filters = filters
        self._runtime = runtime
        self._cluster = cluster
        self._links = links
        self._topics = topics
        self._traffic = traffic
        self._releaser = LeaseReleaser(runtime, links)
        self._finish_batchers = FinishBatchers(links, runtime.background)
        self._numbers = itertools.count(1)
        """Numbers of requests to enodes. The id of a request is also its attempt id if the consumer gave none."""
        self._rotation = 0

    async def pop(self, call: PopCall) -> PopResult:
        """Lease messages to a consumer; waits up to `call.wait_ms` for the first message.

        Errors: Invalid, NotFound (topic), Conflict (the group may not consume, the topic cannot be read), Unavailable.
        """
        topic = await self._cluster.watch.topic(call.topic)
        if not topic.readable:
            raise Conflict(f"topic {topic.name} is {topic.permission.name}: it cannot be read", field="topic")
        await self._topics.group_settings.check(call.group)
        mode = DeliveryMode.POP_IN_ORDER if call.rules.in_order else DeliveryMode.POP
        await self._topics.delivery_modes.ensure_mode(call.group, (topic.name,), mode)
        if topic.message_type is MessageType.PRIORITY:
            call = replace(call, rules=replace(call.rules, by_priority=True))
        sources = self._sources(topic, call)
        if not sources:
            raise Unavailable(f"no enode of topic {topic.name} is reachable; retry", retry_after_ms=500)
        deadline_s = self._runtime.clock.monotonic_s() + call.wait_ms / 1000
        while True:
            wait_ms = max(0, int((deadline_s - self._runtime.clock.monotonic_s()) * 1000))
            result = await self._pop_once(sources, replace(call, wait_ms=wait_ms))
            remaining_s = deadline_s - self._runtime.clock.monotonic_s()
            if result.batches or remaining_s <= 0:
                for one in result.batches:
                    batch = one.popped.batch
                    self._traffic.count_delivered(one.queue.topic, call.group, "pop", batch.count, len(batch.records))
                return result
            if result.has_others:
                await self._runtime.clock.sleep(min(remaining_s, OTHERS_PAUSE_S))

    async def cancel(self, call: PopCall) -> None:
        """Cancel all pops of an attempt: their messages are released, and later pops of the attempt return none.

        Errors: Invalid, NotFound, Unavailable. After Unavailable the caller repeats the request.
        """
        topic = await self._cluster.watch.topic(call.topic)
        failures: list[OrtooError] = []
        for source in self._sources(topic, call):
            request = PopRequest(source.topic.topic_id, call.group, source.queue_ids, 1, call.invisible_ms, 0, 0)
            request = replace(request, attempt_id=call.attempt_id, rules=call.rules)
            try:
                await self._releaser.cancel_once(source.enode, request)
            except OrtooError as error:  # the other sources are cancelled anyway
                failures.append(error)
        if failures:
            raise failures[0]

    async def settle(
        self,
        receipts: Sequence[tuple[ReceiptHandle, Sequence[int]]],
        verdict: LeaseVerdict,
        *,
        unexpired_only: bool = False,
    ) -> list[set[int]]:
        """Ack, nack or release messages; returns for each receipt the offsets of messages no longer in its lease.

        A receipt is a handle and offsets; no offsets = all messages of the lease. With `unexpired_only`, a message
        counts as no longer leased when its lease has expired, even if it was not leased again. A repeated ack succeeds.

        Errors: NotFound if the only receipt is for a missing queue, Unavailable, and those of the enode. After an error
        some messages may be settled; the caller repeats the request.
        """
        stale: list[set[int]] = [set() for _ in receipts]
        places: dict[tuple[str, int, str], list[int]] = {}
        for index, (handle, _) in enumerate(receipts):
            places.setdefault((handle.enode, handle.topic_id, handle.group), []).append(index)
        failures: list[OrtooError] = []
        for (enode, topic_id, group), indices in places.items():
            parts = [replace(_lease_part(*receipts[index]), unexpired_only=unexpired_only) for index in indices]
            try:
                if verdict == FINISH:
                    found = await self._finish_batchers.finish((enode, topic_id, group), parts)
                else:
                    completed = self._complete_verdict(verdict, group, enode)
                    found = await self._links.to(enode).settle(topic_id, group, parts, completed)
            except OrtooError as error:  # receipts of other enodes are still settled
                failures.append(error)
                continue
            stale_by_place = {(one.queue_id, one.offset, one.number): one for one in found}
            for index in indices if stale_by_place else ():
                handle, offsets = receipts[index]
                requested = offsets or (handle.first_offset,)
                numbers = (handle.number, 0)
                refused = [
                    stale_by_place[at]
                    for one in requested
                    for n in numbers
                    if (at := (handle.queue_id, one, n)) in stale_by_place
                ]
                failures += [one.error for one in refused if one.error is not None and len(receipts) == 1]
                stale[index] = {one.offset for one in refused if offsets or one.error is not None}
        if failures:
            raise failures[0]
        return stale

    async def ensure_dead_letter_topics(self, handles: Iterable[ReceiptHandle]) -> None:
        """Create the missing dead-letter topics for the messages of `handles`. Errors: Unavailable."""
        for group, enode in dict.fromkeys((handle.group, handle.enode) for handle in handles):
            await self._topics.group_topics.ensure(dead_letter_topic(group), enode)

    async def _pop_once(self, sources: Sequence[PopSource], call: PopCall) -> PopResult:
        """Pop from each source without waiting. If all are empty, wait at all sources for the first answer."""
        self._rotation += 1
        at = self._rotation % len(sources)
        rotated = [*sources[at:], *sources[:at]]
        results: list[PopResult] = []
        failures: list[OrtooError] = []
        if len(rotated) > 1:
            try:
                for source in rotated:
                    room = call.messages_max - sum(len(one.popped.offsets) for one in _merge(results).batches)
                    if room <= 0:
                        break
                    try:
                        results.append(await self._pop_source(source, replace(call, messages_max=room, wait_ms=0)))
                    except Conflict:
                        raise
                    except OrtooError as error:
                        failures.append(error)
            except BaseException:
                self._release_later(results)
                raise
            if len(failures) == len(rotated):
                raise failures[0]
            merged = _merge(results)
            if merged.batches or not call.wait_ms:
                return merged
        return await self._pop_any(rotated, call)

    async def _pop_any(self, sources: Sequence[PopSource], call: PopCall) -> PopResult:
        """Wait at all sources; answers that arrive together are merged."""
        if len(sources) == 1:
            return await self._pop_source(sources[0], call)
        # These are tasks, not futures of them: a cancelled pop must notice it at once, or its messages would be lost.
        tasks = [
            self._runtime.background.run_contained("pop", pop_or_error(self._pop_source(source, call)))
            for source in sources
        ]
        waiting: set[asyncio.Task[PopResult | OrtooError]] = set(tasks)
        taken: set[asyncio.Task[PopResult | OrtooError]] = set()
        results: list[PopResult] = []
        failure: OrtooError = Unavailable("nothing could be popped")
        try:
            while waiting and not results:  # an unreachable enode delays only its own pop
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                taken |= done
                for found in [task.result() for task in tasks if task in done]:
                    if isinstance(found, OrtooError):
                        failure = found
                    else:
                        results.append(found)
            if not results:
                raise failure
            return _merge(results)
        finally:
            late = [task.result() for task in tasks if task.done() and not task.cancelled() and task not in taken]
            self._release_later([one for one in late if isinstance(one, PopResult)])
            for task in tasks:
                task.cancel()

    def _release_later(self, results: Iterable[PopResult]) -> None:
        """Release messages of a call that has returned other messages, or that has ended."""
        for result in results:
            self._runtime.background.run_contained("give back", self.release(result))

    async def _pop_source(self, source: PopSource, call: PopCall) -> PopResult:
        link = self._links.to(source.enode)
        dead_letters = dead_letter_topic(call.group)
        request_id = f"{self._runtime.incarnation}/{next(self._numbers)}"
        rules = self._rules(call.rules, call.group, source.enode)
        count = call.messages_max if call.message_filter is None else call.messages_max * FILTER_FACTOR
        request = PopRequest(
            source.topic.topic_id,
            call.group,
            source.queue_ids,
            min(count, MESSAGES_MAX),
            call.invisible_ms,
            0,
            call.wait_ms,
            call.consumer,
            call.attempt_id or request_id,
            rules,
            request_id=request_id,
        )
        background = self._runtime.background
        pop = background.start_future("pop", link.pop(request))
        try:
            popped = await asyncio.shield(pop)
        except asyncio.CancelledError:
            # Cancel only this request: its call timed out, and the consumer may repeat the attempt.
            background.run_contained("call off", self._releaser.cancel(source.enode, request, pop))
            raise
        except Unavailable:
            # Otherwise its messages would wait for the end of their lease if the answer has only messages of other
            # sources.
            background.run_contained("call off", self._releaser.cancel(source.enode, request))
            raise
        try:
            if popped.needs_dead_letter_topic:
                self._runtime.background.run_contained(
                    "dead letters", self._create_dead_letter_topic(dead_letters, source.enode)
                )
            return await self._make_result(source, call, popped)
        except BaseException:
            release = self._releaser.release(source.enode, source.topic.topic_id, call.group, popped.batches)
            background.run_contained("give back", release)
            raise

    async def _make_result(self, source: PopSource, call: PopCall, popped: Popped) -> PopResult:
        batches = popped.batches
        is_retry, has_others = source.topic.name == retry_topic(call.group), False
        if call.message_filter is not None and batches and not is_retry:
            batches, has_others = await self._filter(source, call, batches)
        return PopResult(
            [
                PoppedMessages(
                    Queue(source.topic.name, source.enode, one.queue_id),
                    ReceiptHandle(
                        source.enode, call.group, source.topic.topic_id, one.queue_id, one.number, one.offsets[0],
                        one.offsets[-1] - one.offsets[0] + 1,
                    ),
                    one,
                )
                for one in batches
            ],
            popped.blocked_reason,
            has_others,
        )  # fmt: skip

    async def _filter(
        self, source: PopSource, call: PopCall, batches: list[PoppedBatch]
    ) -> tuple[list[PoppedBatch], bool]:
        """The messages that match the filter, and whether messages were left to other members.

        Other messages are acked; excess messages are released.
        """
        assert call.message_filter is not None
        differing = self._filters.differing(call.group, source.topic.name)
        found = filter_popped(batches, call.message_filter, call.messages_max, differing)
        link = self._links.to(source.enode)
        if found.for_others:
            later = self._complete_verdict(Redeliver((OTHERS_DELAY_MS,), counts=False), call.group, source.enode)
            await link.settle(source.topic.topic_id, call.group, found.for_others, later)
        if found.filtered_out:
            await link.settle(source.topic.topic_id, call.group, found.filtered_out, Finish(filtered=True))
        if found.excess:
            await self._releaser.release(source.enode, source.topic.topic_id, call.group, found.excess)
        return found.matching, bool(found.for_others)

    async def release(self, result: PopResult) -> None:
        """Release all messages of an answer, because the consumer did not receive it."""
        for one in result.batches:
            await self._releaser.release(one.queue.enode, one.handle.topic_id, one.handle.group, [one.popped])

    async def nack_all(self, result: PopResult, consumer: str, error: str) -> None:
        """Nack all messages of an answer, because `consumer` could not receive it.

        The group's settings determine the delay.
        """
        verdict = Redeliver((), True, consumer, error)
        for one in result.batches:
            with contextlib.suppress(OrtooError):
                await self.settle([(one.handle, one.popped.offsets)], verdict)

    def _sources(self, topic: Topic, call: PopCall) -> list[PopSource]:
        if call.queue is not None:
            return [PopSource(topic, call.queue.enode, (call.queue.queue_id,))]
        topics = [topic]
        retries = self._cluster.directory.find_topic(retry_topic(call.group))
        if retries is not None and retries.name != topic.name:
            topics.append(retries)
        return [
            PopSource(one, placement.enode, tuple(range(placement.read_queue_count)))
            for one in topics
            for placement in one.placements
            if self._is_reachable(placement)
        ]

    def _is_reachable(self, placement: Placement) -> bool:
        try:
            self._links.to(placement.enode)
        except OrtooError:
            return False
        return placement.read_queue_count > 0

    def _complete_verdict(self, verdict: LeaseVerdict, group: str, enode: str) -> LeaseVerdict:
        if not isinstance(verdict, Redeliver):
            return verdict
        delays_ms = verdict.delays_ms or self._topics.group_settings.get(group).retry.delays_ms
        return replace(verdict, delays_ms=delays_ms, rules=self._rules(verdict.rules, group, enode))

    def _rules(self, rules: PopRules, group: str, enode: str) -> PopRules:
        """The rules of a request, completed by the settings of the group."""
        settings = self._topics.group_settings.get(group)
        return replace(
            rules,
            attempts_max=rules.attempts_max or settings.attempts_max,
            in_flight_max=rules.in_flight_max or settings.in_flight_max,
            park_expired=settings.park_expired,
            dead_letter_topic_id=self._topics.group_topics.topic_id(dead_letter_topic(group), enode),
        )

    async def _create_dead_letter_topic(self, name: str, enode: str) -> None:
        try:
            await self._topics.group_topics.ensure(name, enode)
        except OrtooError as error:
            _log.emit(log_events.DEAD_LETTER_TOPIC_CREATE_FAILED_RETRYING, topic=name, reason=str(error))


async def pop_or_error(pop: Awaitable[PopResult]) -> PopResult | OrtooError:
    """Wait for a pop; returns its result, or its error instead of raising it."""
    try:
        return await pop
    except Exception as error:
        return as_ortoo_error(error, "pop")


def _lease_part(handle: ReceiptHandle, offsets: Sequence[int]) -> LeasePart:
    if not offsets:
        return LeasePart(handle.queue_id, handle.number, ((handle.first_offset, handle.count),), is_exact=False)
    return LeasePart(handle.queue_id, handle.number, ranges_of(offsets))


def _merge(results: Sequence[PopResult]) -> PopResult:
    batches = [batch for answer in results for batch in answer.batches]
    blocked_reason = "" if batches else next((one.blocked_reason for one in results if one.blocked_reason), "")
    return PopResult(batches, blocked_reason, any(one.has_others for one in results))
