"""Pops over all queues of a topic on all enodes, and ack, nack and release of the popped messages."""

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ortoo.common.directory.group import Group
from ortoo.common.directory.topic import MessageType
from ortoo.common.errors import Conflict, OrtooError, Unavailable
from ortoo.common.groups.pop import (
    AwaitRequest,
    Finish,
    LeasePart,
    LeaseVerdict,
    PopRequest,
    Redeliver,
    StaleMessage,
    ranges_of,
)
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.routes import DeliveryMode, Queue, Topic
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.membership.group_filters import GroupFilters
from ortoo.snode.observe.traffic import Traffic
from ortoo.snode.pop.attempts import RecentAttempts
from ortoo.snode.pop.call import PopCall, PopResult, PopSource
from ortoo.snode.pop.direct_pops import DirectPops
from ortoo.snode.pop.finish_batchers import FinishBatchers
from ortoo.snode.pop.lease_release import LeaseReleaser
from ortoo.snode.pop.receipt_handle import ReceiptHandle
from ortoo.snode.pop.shared_pops import IdlePop, SharedPops
from ortoo.snode.pop.source_pops import SourcePops
from ortoo.snode.pop.watches import PopWatches
from ortoo.snode.topics import TopicComponents
from ortoo.snode.topics.creation import dead_letter_topic, retry_topic

FINISH = Finish()
DIRECT_POPS_MAX = 100
"""At most this number of pops wait at the enodes themselves, which saves a round trip for their messages. Pops of
several enodes share their waits, as all other pops do."""
CROWD_POPS, DIRECT_POPS_OF_CROWD = 1_000, 10
"""If this number of pops share their waits, only few wait at the enodes. The end of an idle pop that waits there costs
the snode five times as much."""
OTHERS_PAUSE_S = 0.2
"""The pause of a consumer that popped only such messages, so that it does not pop a whole backlog repeatedly."""


class IdlePlaces(NamedTuple):
    """The waits at enodes of equal pops, while the directory's entries on which they depend stay the same."""

    topic: Topic
    group: Group
    seen: Mapping[str, Topic | None]
    """The topics that they depend on, by name."""
    mode: DeliveryMode
    places: Sequence[tuple[str, AwaitRequest]]
    is_at_one_enode: bool


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
        self._runtime = runtime
        self._cluster = cluster
        self._links = links
        self._topics = topics
        self._traffic = traffic
        self._releaser = LeaseReleaser(runtime, links)
        self._finish_batchers = FinishBatchers(links, runtime.background)
        self._source_pops = SourcePops(runtime, links, topics, filters, self._releaser)
        self.watches = PopWatches(links, runtime)
        self._direct = DirectPops(runtime, self._source_pops)
        self._shared = SharedPops(runtime, self._source_pops, self.watches)
        self._attempts = RecentAttempts()

    async def pop(self, call: PopCall) -> PopResult:
        """Lease messages to a consumer; waits up to `call.wait_ms` for the first message.

        Errors: Invalid, NotFound (topic), Conflict (the group may not consume, the topic cannot be read), Unavailable.
        """
        topic = await self._cluster.watch.topic(call.topic)
        if not topic.readable:
            raise Conflict(f"topic {topic.name} is {topic.permission.name}: it cannot be read", field="topic")
        await self._topics.group_settings.check(call.group)
        await self._topics.delivery_modes.ensure_mode(call.group, (topic.name,), _mode(call))
        call = _by_priority(call, topic)
        sources = self._sources(topic, call)
        if not self._reachable(sources, call):
            raise Unavailable(f"no enode of topic {topic.name} is reachable; retry", retry_after_ms=500)
        asks_all = self._attempts.begin(call, self._runtime.clock.monotonic_s())
        result = PopResult([])
        try:
            result = await self._pop_or_wait(sources, call, asks_all=asks_all)
        finally:
            self._attempts.end(call, self._runtime.clock.monotonic_s(), has_messages=bool(result.batches))
        for one in result.batches:
            batch = one.popped.batch
            self._traffic.count_delivered(one.queue.topic, call.group, "pop", batch.count, len(batch.records))
        return result

    def idle_places(self, call: PopCall) -> IdlePlaces | None:
        """The waits of a pop at enodes, for `begin`; None if the pop may fail, or does not share its waits."""
        directory = self._cluster.directory
        topic = directory.find_topic(call.topic)
        group = directory.group(call.group)
        if topic is None or not topic.readable or group is None or not group.consume_enabled:
            return None
        seen = {name: directory.find_topic(name) for name in (topic.name, retry_topic(call.group))}
        call = _by_priority(call, topic)
        sources = self._sources(topic, call)
        placed = [one for topic in seen.values() if topic is not None for one in topic.placements]
        if not sources or len(sources) != sum(bool(one.read_queue_count) for one in placed):
            return None  # there is nothing to wait for, or an enode is not known yet
        places = [self.watches.shared((one.enode, self._source_pops.await_request(one, call))) for one in sources]
        letters = dead_letter_topic(call.group)
        seen[letters] = directory.find_topic(letters)
        return IdlePlaces(topic, group, seen, _mode(call), places, len({one.enode for one in sources}) == 1)

    def are_current(self, places: IdlePlaces) -> bool:
        """Whether `idle_places` would return the same."""
        directory = self._cluster.directory
        if directory.group(places.group.name) is not places.group:
            return False
        return all(directory.find_topic(name) is topic for name, topic in places.seen.items())

    def begin(self, places: IdlePlaces, call: PopCall) -> IdlePop | None:
        """Begin a pop that waits for messages without a task; None if it needs `pop`, and then nothing has begun.

        `places` are current. After `woken`, the caller calls `expire`. If that returns None, it calls `pop` for the
        rest of the time, and then `end`.
        """
        now_s, modes = self._runtime.clock.monotonic_s(), self._topics.delivery_modes
        confirmed = (places.topic, call.group, places.mode)
        if not modes.is_confirmed(*confirmed):
            return None
        if modes.begin_renewal(*confirmed):
            self._runtime.background.run_contained("delivery mode", modes.renew(*confirmed))
        if (places.is_at_one_enode and self._has_direct_place()) or self._attempts.begin(call, now_s):
            return None
        return self._shared.begin(places.places, call, now_s)

    def expire(self, idle: IdlePop) -> PopResult | None:
        """End an idle pop that was woken by its time only; None if messages may be available, or there is an error."""
        self._shared.stop_waiting(idle)
        now_s = self._runtime.clock.monotonic_s()
        if not idle.is_undisturbed or now_s < idle.deadline_s:
            self._attempts.end(idle.call, now_s, has_messages=False)  # until now its consumer was not away
            return None
        self.end(idle)
        return PopResult([], next((one.blocked_reason for one in idle.watches if one.blocked_reason), ""))

    def stop(self, idle: IdlePop) -> None:
        """End an idle pop before it is woken."""
        self._shared.stop_waiting(idle)
        self.end(idle)

    def end(self, idle: IdlePop) -> None:
        """End an idle pop. If it was woken, other pops are woken."""
        self._shared.leave(idle)
        self._attempts.end(idle.call, self._runtime.clock.monotonic_s(), has_messages=False)

    async def _pop_or_wait(self, sources: Sequence[PopSource], call: PopCall, *, asks_all: bool) -> PopResult:
        clock = self._runtime.clock
        deadline_s = clock.monotonic_s() + call.wait_ms / 1000
        while True:
            # Rounded up: a wait that ends before the deadline would be followed by a request to each enode.
            part = replace(call, wait_ms=max(0, math.ceil((deadline_s - clock.monotonic_s()) * 1000)))
            if not part.wait_ms:
                result = await self._direct.pop(sources, part)
            elif len({one.enode for one in sources}) == 1 and self._has_direct_place():
                result = await self._direct.pop_or_wait(sources, part)
            else:
                result = await self._shared.pop(sources, part, asks_all=asks_all)
            remaining_s = deadline_s - clock.monotonic_s()
            if result.batches or remaining_s <= 0:
                return result
            if result.has_others:
                await clock.sleep(min(remaining_s, OTHERS_PAUSE_S))

    def _has_direct_place(self) -> bool:
        is_crowded = self._shared.waiting >= CROWD_POPS
        return self._direct.waiting < (DIRECT_POPS_OF_CROWD if is_crowded else DIRECT_POPS_MAX)

    def place(self, queue: Queue, call: PopCall) -> tuple[str, AwaitRequest]:
        """The enode of a queue, and the wait for its messages. Errors: NotFound."""
        source = PopSource(self._cluster.directory.topic(queue.topic), queue.enode, (queue.queue_id,))
        return queue.enode, self._source_pops.await_request(source, call)

    async def cancel(self, call: PopCall) -> None:
        """Cancel all pops of an attempt: their messages are released, and later pops of the attempt return none.

        Errors: Invalid, NotFound, Unavailable. After Unavailable the caller repeats the request.
        """
        topic = await self._cluster.watch.topic(call.topic)
        self._shared.cancel(call)
        failures: list[OrtooError] = []
        for source in self._reachable(self._sources(topic, call), call):
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
                    completed = self._source_pops.complete_verdict(verdict, group, enode)
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

    def finish_one(self, handle: ReceiptHandle, finished: Callable[[bool | OrtooError], None]) -> None:
        """Ack the one message of a handle, as `settle` does with `unexpired_only`, without waiting for the answer.

        `finished` gets whether the message was no longer leased, or the error; it must not raise.
        """
        part = LeasePart(handle.queue_id, handle.number, ((handle.first_offset, 1),), unexpired_only=True)
        place = handle.enode, handle.topic_id, handle.group
        self._finish_batchers.put(place, (part,), lambda found: finished(_staleness(handle, found)))

    async def ensure_dead_letter_topics(self, handles: Iterable[ReceiptHandle]) -> None:
        """Create the missing dead-letter topics for the messages of `handles`. Errors: Unavailable."""
        for group, enode in dict.fromkeys((handle.group, handle.enode) for handle in handles):
            await self._topics.group_topics.ensure(dead_letter_topic(group), enode)

    async def release(self, result: PopResult) -> None:
        """Release all messages of an answer, because the consumer did not receive it."""
        await self._source_pops.release(result)

    async def nack_all(self, result: PopResult, consumer: str, error: str) -> None:
        """Nack all messages of an answer, because `consumer` could not receive it.

        The group's settings determine the delay.
        """
        verdict = Redeliver((), True, consumer, error)
        for one in result.batches:
            with contextlib.suppress(OrtooError):
                await self.settle([(one.handle, one.popped.offsets)], verdict)

    def _sources(self, topic: Topic, call: PopCall) -> list[PopSource]:
        """The sources of a pop, also those on enodes that may be reachable before it ends."""
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
            if placement.read_queue_count and isinstance(self._link_error(placement.enode), Unavailable | None)
        ]

    def _reachable(self, sources: Sequence[PopSource], call: PopCall) -> Sequence[PopSource]:
        """The sources that a request may reach now. A call for one queue gets the error of its enode."""
        return sources if call.queue else [one for one in sources if self._link_error(one.enode) is None]

    def _link_error(self, enode: str) -> OrtooError | None:
        try:
            self._links.to(enode)
        except OrtooError as error:
            return error
        return None


def _mode(call: PopCall) -> DeliveryMode:
    return DeliveryMode.POP_IN_ORDER if call.rules.in_order else DeliveryMode.POP


def _by_priority(call: PopCall, topic: Topic) -> PopCall:
    if topic.message_type is not MessageType.PRIORITY:
        return call
    return replace(call, rules=replace(call.rules, by_priority=True))


def _lease_part(handle: ReceiptHandle, offsets: Sequence[int]) -> LeasePart:
    if not offsets:
        return LeasePart(handle.queue_id, handle.number, ((handle.first_offset, handle.count),), is_exact=False)
    return LeasePart(handle.queue_id, handle.number, ranges_of(offsets))


def _staleness(handle: ReceiptHandle, found: list[StaleMessage] | OrtooError) -> bool | OrtooError:
    """Whether the message of a handle is among the stale messages of a request, or the error about it."""
    if isinstance(found, OrtooError):
        return found
    place, numbers = (handle.queue_id, handle.first_offset), (handle.number, 0)
    for one in found:
        if (one.queue_id, one.offset) == place and one.number in numbers:
            return one.error or True
    return False
