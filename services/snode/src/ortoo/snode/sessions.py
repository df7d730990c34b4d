"""All push sessions of this snode: opened, watched for silence and slowness, closed at the end."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from ortoo.common.clock import Clock
from ortoo.common.errors import Conflict, Invalid, OrtooError, Overloaded
from ortoo.common.logs import get_logger
from ortoo.common.names import check_group_name
from ortoo.snode.close_reason import CloseReason
from ortoo.snode.directory_watch import DirectoryWatch
from ortoo.snode.membership import Member
from ortoo.snode.message_filter import MessageFilter, compile_filter
from ortoo.snode.name_server import NameServer
from ortoo.snode.push_session import PushParts, PushSession, check_subscriptions
from ortoo.snode.routes import Group, Queue
from ortoo.snode.slow_consumer import SlowRule

FAREWELL_S = 60.0
"""How long a client that does not read has time to take the reason why its session ended."""
SESSIONS_MAX = 10_000
CLIENT_ID_LENGTH_MAX = 255
Ends = dict[tuple[str, int], dict[int, int]]
_log = get_logger("sessions")


class Sessions:
    """Every open push session, by the id that the server made."""

    def __init__(
        self, parts: PushParts, watch: DirectoryWatch, name_server: NameServer, *, clock: Clock, expiry_s: float
    ) -> None:
        self.evicted_slow = 0
        """How many sessions were ended because they were slow."""
        self._parts = parts
        self._watch = watch
        self._name_server = name_server
        self._clock = clock
        self._expiry_s = expiry_s
        self._sessions: dict[str, PushSession] = {}
        self._leaving: dict[str, tuple[asyncio.Task[Any], float]] = {}

    def all(self) -> list[PushSession]:
        """Every open session."""
        return list(self._sessions.values())

    async def open(
        self, group: str, client_id: str, subscriptions: Sequence[tuple[str, str, str]], *, from_first: bool
    ) -> PushSession:
        """Open a session; a subscription is topic, tag expression and SQL expression.

        Errors: Invalid, NotFound for a topic, Conflict when the group may not consume.
        """
        check_group_name(group, "open.group")
        if len(client_id) > CLIENT_ID_LENGTH_MAX:
            raise Invalid(f"{len(client_id)} characters; give at most {CLIENT_ID_LENGTH_MAX}", field="open.client_id")
        check_subscriptions([topic for topic, _, _ in subscriptions])
        if len(self._sessions) >= SESSIONS_MAX:
            raise Overloaded(f"{SESSIONS_MAX} sessions are open on this snode; use another", retry_after_ms=5_000)
        filters: dict[str, MessageFilter | None] = {}
        for topic_name, tags, sql in subscriptions:
            topic = await self._watch.topic(topic_name)
            if not topic.readable:
                raise Conflict(f"topic {topic.name} is {topic.permission.name}: it cannot be read", field="topic")
            filters[topic.name] = compile_filter(tags, sql, "open.subscriptions")
        await self._check_group(group)
        session = PushSession(
            self._parts,
            group=group,
            client_id=client_id,
            filters=filters,
            from_first=from_first,
            heartbeat_interval_ms=int(self._expiry_s * 1000 / 4),
        )
        self._sessions[session.session_id] = session
        await self._parts.groups.join(group, Member(session.session_id, client_id, session.topics), session)
        return session

    async def close(self, session: PushSession, reason: CloseReason, message: str) -> None:
        """End a session, once."""
        if self._sessions.pop(session.session_id, None) is not None and session.call is not None:
            self._leaving[session.session_id] = (session.call, self._clock.monotonic_s() + FAREWELL_S)
        await session.close(reason, message)

    def ended(self, session: PushSession) -> None:
        """The call of a session is over."""
        self._leaving.pop(session.session_id, None)

    async def close_all(self, reason: CloseReason, message: str) -> None:
        """End every session."""
        await asyncio.gather(*(self.close(session, reason, message) for session in list(self._sessions.values())))

    async def sweep(self) -> None:
        """End the sessions that are silent or slow; to be called about once a second."""
        now_s = self._clock.monotonic_s()
        ends: Ends = {}
        for session_id, (call, deadline_s) in list(self._leaving.items()):
            if deadline_s < now_s:
                call.cancel()
                del self._leaving[session_id]
        for session in list(self._sessions.values()):
            if now_s - session.heard_at_s > self._expiry_s:
                await self.close(
                    session,
                    CloseReason.EXPIRED,
                    f"nothing was heard for {self._expiry_s:.0f} s; send a Heartbeat in between, or open another",
                )
            elif slow := await self._slow(session, now_s, ends):
                self.evicted_slow += 1
                _log.warning("a slow consumer is evicted", group=session.group, session=session.session_id, why=slow)
                await self.close(session, CloseReason.SLOW_CONSUMER, slow)

    async def _slow(self, session: PushSession, now_s: float, ends: Ends) -> str:
        """Why a session is slow; empty if it is not. An enode is asked only about those that owe an answer."""
        group = self._parts.directory.group(session.group) or Group(session.group)
        rule = SlowRule(group.slow_consumer_threshold_messages, group.slow_consumer_grace_ms / 1000)
        for cursor, topic_id in session.cursors():
            since_s = cursor.waiting_since_s
            if since_s is None or cursor.acknowledged is None or now_s - since_s < rule.grace_s:
                continue
            end = await self._end_of(cursor.queue, topic_id, ends)
            if rule.broken_by(
                newest_offset=end - 1,
                acknowledged_offset=cursor.acknowledged,
                waiting_since_s=cursor.waiting_since_s,
                now_s=now_s,
            ):
                return (
                    f"queue {cursor.queue} is {end - cursor.acknowledged} messages ahead of the acknowledged offset "
                    f"{cursor.acknowledged} (threshold {rule.threshold_messages}) and nothing was acknowledged for "
                    f"{now_s - since_s:.1f} s; open a new session to go on from there"
                )
        return ""

    async def _end_of(self, queue: Queue, topic_id: int, ends: Ends) -> int:
        """The end of a queue, each (enode, topic) asked once a sweep; 0 when it cannot be told."""
        key = (queue.enode, topic_id)
        if key not in ends:
            ends[key] = {}
            with contextlib.suppress(OrtooError):
                ranges = await self._parts.links.to(queue.enode).describe_queues(topic_id)
                ends[key] = {item.queue_id: item.end_offset for item in ranges}
        return ends[key].get(queue.queue_id, 0)

    async def _check_group(self, name: str) -> None:
        group = self._parts.directory.group(name)
        if group is None:
            try:
                await self._name_server.ensure_group(name)
            except OrtooError as error:
                if not error.retriable:
                    raise
                _log.warning("a group goes on with default settings", group=name, reason=str(error))
        elif not group.consume_enabled:
            raise Conflict(
                f"group {name} may not consume: it was switched off; AdminService/PutGroup switches it on",
                field="group",
            )
