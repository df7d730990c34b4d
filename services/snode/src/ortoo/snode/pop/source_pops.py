"""Pops from one source: the queues of one topic on one enode."""

import asyncio
import itertools
from collections.abc import Iterable
from dataclasses import replace

from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.groups.pop import (
    AwaitRequest,
    Finish,
    LeaseVerdict,
    Popped,
    PoppedBatch,
    PopRequest,
    PopRules,
    Redeliver,
)
from ortoo.common.logs.logger import get_logger
from ortoo.snode import log_events
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.membership.group_filters import GroupFilters
from ortoo.snode.pop.call import PopCall, PoppedMessages, PopResult, PopSource
from ortoo.snode.pop.filtering import filter_popped
from ortoo.snode.pop.lease_release import LeaseReleaser
from ortoo.snode.pop.receipt_handle import ReceiptHandle
from ortoo.snode.topics import TopicComponents
from ortoo.snode.topics.creation import dead_letter_topic, retry_topic

FILTER_FACTOR = 8
"""Maximum of messages that one pop examines for each requested message."""
MESSAGES_MAX = 1_024
AWAIT_MS = 60_000
"""The duration of one wait at an enode. It is repeated while a pop uses it."""
OTHERS_DELAY_MS = 1_000
"""The delay after which a message that other members' filters select is popped again."""
_log = get_logger("pops")


class SourcePops:
    """Pops from single sources, filtered, by the rules of their groups."""

    def __init__(
        self,
        runtime: Runtime,
        links: EnodeLinks,
        topics: TopicComponents,
        filters: GroupFilters,
        releaser: LeaseReleaser,
    ) -> None:
        self._runtime = runtime
        self._links = links
        self._topics = topics
        self._filters = filters
        self._releaser = releaser
        self._numbers = itertools.count(1)
        """Numbers of requests to enodes. The id of a request is also its attempt id if the consumer gave none."""

    async def pop(self, source: PopSource, call: PopCall) -> PopResult:
        """Pop from one source; waits there up to `call.wait_ms`. A cancelled pop releases its messages.

        Errors: those of the enode.
        """
        link = self._links.to(source.enode)
        dead_letters = dead_letter_topic(call.group)
        request_id = f"{self._runtime.incarnation}/{next(self._numbers)}"
        rules = self.rules(call.rules, call.group, source.enode)
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
            is_empty=not popped.batches,
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
            later = self.complete_verdict(Redeliver((OTHERS_DELAY_MS,), counts=False), call.group, source.enode)
            await link.settle(source.topic.topic_id, call.group, found.for_others, later)
        if found.filtered_out:
            await link.settle(source.topic.topic_id, call.group, found.filtered_out, Finish(filtered=True))
        if found.excess:
            await self._releaser.release(source.enode, source.topic.topic_id, call.group, found.excess)
        return found.matching, bool(found.for_others)

    def await_request(self, source: PopSource, call: PopCall) -> AwaitRequest:
        """The wait for messages that `pop` may return."""
        rules = self.rules(call.rules, call.group, source.enode)
        return AwaitRequest(source.topic.topic_id, call.group, source.queue_ids, rules, AWAIT_MS)

    async def release(self, result: PopResult) -> None:
        """Release all messages of a result without counting an attempt."""
        for one in result.batches:
            await self._releaser.release(one.queue.enode, one.handle.topic_id, one.handle.group, [one.popped])

    def release_later(self, results: Iterable[PopResult]) -> None:
        """Release messages of a call that has returned other messages, or that has ended."""
        for result in results:
            self._runtime.background.run_contained("give back", self.release(result))

    def complete_verdict(self, verdict: LeaseVerdict, group: str, enode: str) -> LeaseVerdict:
        """The verdict with the delays and rules of the group."""
        if not isinstance(verdict, Redeliver):
            return verdict
        delays_ms = verdict.delays_ms or self._topics.group_settings.get(group).retry.delays_ms
        return replace(verdict, delays_ms=delays_ms, rules=self.rules(verdict.rules, group, enode))

    def rules(self, rules: PopRules, group: str, enode: str) -> PopRules:
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
