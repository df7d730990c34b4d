"""All push sessions of this snode: opening, closing, and ending of silent and slow sessions."""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from ortoo.common.errors import Conflict, Invalid, OrtooError
from ortoo.common.filters.message_filter import MessageFilter, compile_filter
from ortoo.common.logs.logger import get_logger
from ortoo.common.telemetry.metrics import Metrics
from ortoo.snode import log_events
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.routes import DeliveryMode, Queue
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes import EnodeComponents
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.membership.consumer_groups import ConsumerGroups
from ortoo.snode.membership.fair_table import FairTable
from ortoo.snode.membership.group_filters import GroupFilters
from ortoo.snode.membership.group_members import (
    CloseReason,
    GroupMember,
    SlowConsumerRule,
    Subscription,
    merge_subscriptions,
)
from ortoo.snode.observe.traffic import Traffic
from ortoo.snode.push.evictions import SlowEvictions
from ortoo.snode.push.feeder import Park, PushContext
from ortoo.snode.push.outbox import SessionClosed
from ortoo.snode.push.plan import PushPlan
from ortoo.snode.push.session import PushSession
from ortoo.snode.topics import TopicComponents
from ortoo.snode.topics.creation import retry_topic

CLOSE_TIMEOUT_S = 60.0
"""Time for a client that does not read to receive the reason why its session ended."""
SESSION_FIXED_BYTES = 24 << 10
"""Fixed memory of a session: its tasks, its stream, its group membership."""
SESSIONS_MAX = 12_500
SUBSCRIPTIONS_MAX = 1_000
_log = get_logger("sessions")


@dataclass(slots=True)
class QueueEndOffsets:
    """The end offsets of queues during one sweep, as the enodes report them.

    The queues of a topic on an enode are requested once. An enode that did not answer is not asked again.
    """

    links: EnodeLinks
    _ends: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict, init=False)
    _unavailable: set[str] = field(default_factory=set, init=False)

    async def end_of(self, queue: Queue, topic_id: int) -> int:
        """The end offset of a queue; 0 if it is unknown."""
        enode, key = queue.enode, (queue.enode, topic_id)
        if key not in self._ends and enode not in self._unavailable:
            self._ends[key] = {}
            try:
                ranges = await self.links.to(enode).describe_queues(topic_id)
                self._ends[key] = {item.queue_id: item.end_offset for item in ranges}
            except OrtooError as error:
                if error.retriable:
                    self._unavailable.add(enode)
        return self._ends.get(key, {}).get(queue.queue_id, 0)


class PushSessions:
    """All open push sessions, by id."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: ClusterView,
        enodes: EnodeComponents,
        topics: TopicComponents,
        groups: ConsumerGroups,
        traffic: Traffic,
        park: Park,
        filters: GroupFilters,
    ) -> None:
        """Start without sessions."""
        shared = (runtime.background, runtime.clock, runtime.randomness, traffic, runtime.memory)
        self.context = PushContext(cluster.directory, enodes.links, groups, enodes.locks, *shared, park, filters)
        self.watch = cluster.watch
        self.group_settings = topics.group_settings
        self.delivery_modes = topics.delivery_modes
        self.expiry_s = runtime.settings.session_expiry_s
        """Timeout of a silent session; a session with its own longer timeout keeps its own."""
        self.evicted_count = 0
        """Number of slow sessions that were ended."""
        self.evictions = SlowEvictions(runtime.clock)
        """The recent evictions of slow clients."""
        self._sessions: FairTable[PushSession] = FairTable(SESSIONS_MAX, "sessions are open")
        self._closing_until_s: dict[str, tuple[PushSession, float]] = {}
        self._register(runtime.metrics)

    def _register(self, metrics: Metrics) -> None:
        """Register the metrics of sessions; RocketMQ 5 has the metrics whose names begin with rocketmq_."""
        sessions: dict[tuple[str, ...], int] = {}
        in_flight: dict[tuple[str, ...], int] = {}

        def count() -> Iterator[None]:
            by_group, by_topic = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
            for session in self.all():
                by_group[session.group,] += 1
                yield
                for cursor in [feeder.cursor for feeder in session.feeders.values()]:
                    yield
                    if cursor.committed_offset is not None:
                        by_topic[cursor.queue.topic, session.group] += max(
                            0, cursor.sent_offset - cursor.committed_offset
                        )
            for counted, totals in ((sessions, by_group), (in_flight, by_topic)):
                counted.clear()
                counted.update(totals)

        metrics.prepare(count)
        metrics.gauge(
            "rocketmq_consumer_connections",
            "Open push sessions.",
            lambda: sessions,
            labels=("consumer_group",),
        )
        metrics.gauge(
            "rocketmq_consumer_inflight_messages",
            "Messages delivered in push sessions and not acknowledged yet.",
            lambda: in_flight,
            labels=("topic", "consumer_group"),
        )
        metrics.counter(
            "ortoo_slow_consumers_evicted_total",
            "Push sessions ended because their consumers were slow.",
            lambda: self.evicted_count,
        )

    @property
    def heartbeat_interval_ms(self) -> int:
        """The interval in which a client must send at least one request."""
        return int(self.expiry_s * 1000 / 4)

    def all(self) -> list[PushSession]:
        """The open sessions."""
        return list(self._sessions.values())

    def find(self, group: str, client_id: str) -> PushSession | None:
        """The push session of a client in a group, if this snode has one."""
        found = self.context.groups.session(group, client_id)
        return found if isinstance(found, PushSession) else None

    async def compile_filters(
        self, group: str, subscriptions: Sequence[Subscription], path: str
    ) -> dict[str, MessageFilter | None]:
        """Check subscriptions; returns the filter for each topic, None = all messages.

        A missing topic is accepted only if it is the group's own retry topic. Errors: Invalid, NotFound, Conflict for a
        topic without read permission.
        """
        topics = [one.topic for one in subscriptions]
        if not 1 <= len(topics) <= SUBSCRIPTIONS_MAX:
            raise Invalid(f"{len(topics)} subscriptions; give 1 to {SUBSCRIPTIONS_MAX}", field=path)
        if len(set(topics)) != len(topics):
            raise Invalid("a topic is named twice; give each topic one subscription", field=path)
        filters: dict[str, MessageFilter | None] = {}
        for one in subscriptions:
            if one.topic == retry_topic(group) and self.context.directory.find_topic(one.topic) is None:
                filters[one.topic] = None
                continue
            topic = await self.watch.topic(one.topic)
            if not topic.readable:
                raise Conflict(f"topic {topic.name} is {topic.permission.name}: it cannot be read", field="topic")
            filters[topic.name] = compile_filter(one.tag_expression, one.sql_expression, path)
        return filters

    async def open(self, plan: PushPlan, make_member: Callable[[PushSession], GroupMember]) -> PushSession:
        """Open a session for a checked plan; `make_member` makes its group member.

        Errors: Overloaded, Conflict if the group may not consume or uses pops, Forbidden if the plan is not allowed,
        and those of `make_member`.
        """
        self._sessions.check(plan.owner)
        await self.group_settings.check(plan.group, broadcast=plan.broadcast)
        if not plan.broadcast:
            await self.delivery_modes.ensure_mode(plan.group, plan.filters, DeliveryMode.OFFSETS)
        session = PushSession(self.context, plan)
        session.memory.draw_fixed(SESSION_FIXED_BYTES)
        session.on_end = partial(self.start_close, session)
        session.memory.on_evict = partial(self._evict_not_reading, session)
        joining = make_member(session)
        self._sessions.put(session.session_id, session, plan.owner)
        replaced = self.find(plan.group, session.client_id)
        if replaced is not None:
            replaced.on_replaced()
        self.context.groups.join(plan.group, joining, session)
        return session

    async def subscribe(self, session: PushSession, changes: Sequence[Subscription]) -> None:
        """Change the subscriptions of a session. Errors: as `compile_filters`."""
        member = self._current_member(session)
        if member is None:
            return
        subscriptions = merge_subscriptions(member.subscriptions, changes)
        filters = await self.compile_filters(session.group, subscriptions, "subscribe.subscriptions")
        if self._current_member(session) is not member:  # meanwhile it ended, or its client sent a newer subscription
            await self.subscribe(session, changes)
            return
        session.subscribe(filters)
        self.context.groups.membership.join(session.group, dataclasses.replace(member, subscriptions=subscriptions))

    def _current_member(self, session: PushSession) -> GroupMember | None:
        """The group member of a session; None if the session has ended or was replaced."""
        if self.find(session.group, session.client_id) is not session:
            return None
        member = self.context.groups.membership.members(session.group).get(session.client_id)
        return member if member is not None and member.session_id == session.member_session_id else None

    async def close(self, session: PushSession, reason: CloseReason, message: str, *, reopens: bool = False) -> None:
        """End a session; further calls have no effect.

        `reopens` = its client is expected to open another session at once. Until then it stays a group member, so that
        its queues go to no other member.
        """
        if self._sessions.remove(session.session_id) is not None and session.call is not None:
            self._closing_until_s[session.session_id] = (session, self.context.clock.monotonic_s() + CLOSE_TIMEOUT_S)
        if (member := self._current_member(session)) is not None:
            leave = partial(session.leave_group, member)
            if reopens and not session.plan.member_session_id:
                self.context.groups.leave_later(leave, self.context.background)
            else:
                leave()
        is_interrupted = reason is CloseReason.EXPIRED or (reason is CloseReason.CLIENT_LEFT and not session.has_left)
        await session.close(reason, message, is_interrupted=is_interrupted)

    def on_call_ended(self, session: PushSession) -> None:
        """Record that the Push call of a session has ended, so that no reason can be sent to the client."""
        session.call = None
        self._closing_until_s.pop(session.session_id, None)

    async def close_all(self, reason: CloseReason, message: str) -> None:
        """End every session."""
        await asyncio.gather(*(self.close(session, reason, message) for session in self.all()))

    async def sweep(self) -> None:
        """End the sessions of silent clients, of slow clients, and of groups that may not consume.

        Called about once a second.
        """
        now_s = self.context.clock.monotonic_s()
        for session_id, (leaving, deadline_s) in list(self._closing_until_s.items()):
            if deadline_s < now_s:
                leaving.memory.terminate()
                del self._closing_until_s[session_id]
        remaining: list[PushSession] = []
        for session in self.all():
            expiry_s = max(self.expiry_s, session.plan.expiry_ms / 1000)
            if now_s - session.last_active_s > expiry_s:
                self.start_close(
                    session,
                    CloseReason.EXPIRED,
                    f"the client sent nothing for {expiry_s:.0f} s; send heartbeats, and open another session",
                )
            elif closed := self.group_settings.refusal(session.group, broadcast=session.plan.broadcast):
                self.start_close(session, CloseReason.GROUP_CLOSED, closed.message)
            else:
                session.end_stalled_redelivery(now_s)
                remaining.append(session)
        ends = QueueEndOffsets(self.context.links)
        for session in remaining:
            slow = await self._slow_reason(session, now_s, ends)
            if slow and not session.is_closing:
                self._evict(session, slow)

    def _evict_not_reading(self, session: PushSession, reason: str) -> None:
        """End a session whose client does not read, because memory is exhausted."""
        session.outbox.close(SessionClosed(CloseReason.SLOW_CONSUMER, reason))  # at once: the client gets only this
        self._evict(session, reason)

    def _evict(self, session: PushSession, reason: str) -> None:
        """End the session of a slow client: log, count and record it."""
        self.evicted_count += 1
        _log.emit(
            log_events.SLOW_CONSUMER_EVICTED,
            group=session.group,
            client=session.client_id,
            session=session.session_id,
            reason=reason,
        )
        self.evictions.record(session.group, session.client_id, reason)
        self.start_close(session, CloseReason.SLOW_CONSUMER, reason)

    def start_close(self, session: PushSession, reason: CloseReason, message: str, *, reopens: bool = False) -> None:
        """Start to end a session, without waiting for the end."""
        self.context.background.run_contained("close", self.close(session, reason, message, reopens=reopens))

    async def _slow_reason(self, session: PushSession, now_s: float, ends: QueueEndOffsets) -> str:
        """Why a session is slow; empty if it is not. Only enodes of queues with overdue acknowledgements are asked."""
        rule: SlowConsumerRule | None = None
        for feeder in list(session.awaiting_commit()):
            cursor = feeder.cursor
            rule = rule or self.group_settings.slow_rule(session.group)
            if cursor.committed_offset is None or not rule.is_overdue(cursor.waiting_since_s, now_s):
                continue
            end = max(cursor.end_offset, await ends.end_of(cursor.queue, feeder.topic_id))
            since_s = cursor.waiting_since_s  # it may have acknowledged something meanwhile
            if since_s is None or not rule.is_overdue(since_s, now_s):
                continue
            if rule.is_slow(
                newest_offset=end - 1,
                acknowledged_offset=cursor.committed_offset,
                waiting_since_s=since_s,
                now_s=now_s,
            ):
                return (
                    f"queue {cursor.queue} is {end - cursor.committed_offset} messages ahead of the acknowledged "
                    "offset "
                    f"{cursor.committed_offset} (threshold {rule.threshold_messages}), unchanged for "
                    f"{now_s - since_s:.1f} s; open a new session to continue from there"
                )
            if session.unacknowledged_bytes >= session.unacknowledged_bytes_max:
                return (
                    f"{session.unacknowledged_bytes} bytes are not acknowledged (limit "
                    f"{session.unacknowledged_bytes_max}), and nothing of queue {cursor.queue} was acknowledged for "
                    f"{now_s - since_s:.1f} s; open a new session to continue"
                )
        return ""
