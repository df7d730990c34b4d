"""All push sessions of a snode: opening, ending with reasons, metrics."""

import asyncio
import dataclasses
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ortoo.common.directory.group import Group
from ortoo.common.directory.topic import Permission
from ortoo.common.errors import Conflict, Forbidden, Invalid, NotFound, OrtooError, Overloaded
from ortoo.snode import log_events
from ortoo.snode.cluster.routes import DeliveryMode, DirectoryUpdate, Topic
from ortoo.snode.membership.group_members import CloseReason, Subscription
from ortoo.snode.push.outbox import Delivery, SessionClosed
from ortoo.snode.push.session import PushSession
from ortoo.snode.push.sessions import CLOSE_TIMEOUT_S, SESSION_FIXED_BYTES, SUBSCRIPTIONS_MAX
from ortoo.verification.time.virtual_time import in_virtual_time
from tests.unit.snode.fake_enode import TOPIC
from tests.unit.snode.push.push_bench import EXPIRY_S, QUEUES, Bench, bench, event


async def closed(session: PushSession) -> tuple[CloseReason, str]:
    """The reason of its end."""
    last = await event(session, SessionClosed)
    return last.reason, last.message


def wanted(*topics: str) -> list[Subscription]:
    """Everything of them."""
    return [Subscription(name) for name in topics]


def members(it: Bench) -> dict[str, str]:
    """Client ids of group g, and the sessions of their group members."""
    return {name: one.session_id for name, one in it.groups.membership.members("g").items()}


async def refused(it: Bench, *subscriptions: Subscription) -> OrtooError:
    """The error for these subscriptions."""
    with pytest.raises(OrtooError) as found:
        await it.sessions.compile_filters("g", subscriptions, "a.path")
    return found.value


@in_virtual_time
async def test_subscriptions_are_one_a_topic_that_can_be_read_and_a_thousand_at_most() -> None:
    """The error names the field, and the limit or the allowed values."""
    async with bench() as it:
        it.directory.update_topic(dataclasses.replace(TOPIC, name="w", permission=Permission.WRITE_ONLY))
        none = await refused(it)
        assert isinstance(none, Invalid)
        assert (none.field, none.message) == ("a.path", "0 subscriptions; give 1 to 1000")
        twice = await refused(it, *wanted("t", "t"))
        assert (twice.field, twice.message) == ("a.path", "a topic is named twice; give each topic one subscription")
        closed_topic = await refused(it, *wanted("t", "w"))
        assert isinstance(closed_topic, Conflict)
        assert (closed_topic.field, closed_topic.message) == ("topic", "topic w is WRITE_ONLY: it cannot be read")
        assert isinstance(await refused(it, *wanted("unknown")), NotFound)
        assert (await refused(it, Subscription("t", sql_expression="a >"))).field == "a.path.sql_expression"
        assert (await refused(it, Subscription("t", "||"))).field == "a.path.tag_expression"
        many = [f"t{number}" for number in range(SUBSCRIPTIONS_MAX)]
        for name in many:
            it.directory.update_topic(dataclasses.replace(TOPIC, name=name))
        assert list(await it.sessions.compile_filters("g", wanted(*many), "")) == many
        assert "1001 subscriptions" in (await refused(it, *wanted("t", *many))).message


@in_virtual_time
async def test_a_filter_is_made_of_each_subscription_and_the_groups_own_retry_topic_may_come_later() -> None:
    """Tags, a condition, or nothing, which is everything; another group's retry topic must exist."""
    async with bench() as it:
        for name in ("u", "v"):
            it.directory.update_topic(dataclasses.replace(TOPIC, name=name))
        tagged, by_sql = Subscription("t", "a||b"), Subscription("u", sql_expression="x > 1")
        filters = await it.sessions.compile_filters(
            "g", [Subscription("%RETRY%g", "a"), tagged, by_sql, Subscription("v")], ""
        )
        assert {name: one and one.expressions for name, one in filters.items()} == {
            "%RETRY%g": None,
            "t": ("a||b", ""),
            "u": ("", "x > 1"),
            "v": None,
        }
        assert isinstance(await refused(it, *wanted("%RETRY%h")), NotFound)
        it.directory.update_topic(dataclasses.replace(TOPIC, name="%RETRY%g"))
        late = (await it.sessions.compile_filters("g", [Subscription("%RETRY%g", "a")], ""))["%RETRY%g"]
        assert late is not None
        assert late.expressions == ("a", "")


@in_virtual_time
async def test_an_open_session_is_a_member_found_by_its_client() -> None:
    """It uses some memory, and is removed everywhere when it is closed."""
    async with bench() as it:
        session = await it.open()
        assert it.sessions.all() == [session]
        assert it.sessions.find("g", "c") is session
        assert it.sessions.find("g", "d") is it.sessions.find("h", "c") is None
        assert members(it) == {"c": session.session_id}
        assert session.memory.fixed_bytes == SESSION_FIXED_BYTES
        await it.sessions.close(session, CloseReason.CLIENT_LEFT, "bye")
        assert await closed(session) == (CloseReason.CLIENT_LEFT, "bye")
        assert it.sessions.all() == []
        assert it.sessions.find("g", "c") is None
        assert members(it) == {}
        await it.sessions.close(session, CloseReason.EXPIRED, "again")
        assert await closed(session) == (CloseReason.CLIENT_LEFT, "bye")


@in_virtual_time
async def test_who_may_not_consume_opens_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a disabled group, nor broadcast where it is not allowed, nor a group that pops."""
    async with bench() as it:
        used: list[tuple[int, str, DeliveryMode]] = []

        async def use_mode(*what: Any) -> None:
            used.append(what)
            if what[1] == "pops":
                raise Conflict("it pops")

        monkeypatch.setattr(it.enode, "use_mode", use_mode)
        for name, rules in (("off", {"consume_enabled": False}), ("alone", {"broadcast_enabled": False})):
            it.directory.update_group(Group(name, 1, **rules))  # type: ignore[arg-type]
        with pytest.raises(Conflict, match="it is disabled"):
            await it.open(group="off")
        with pytest.raises(Forbidden, match="broadcast"):
            await it.open(group="alone", broadcast=True)
        with pytest.raises(Conflict, match="it pops"):
            await it.open(group="pops")
        assert it.sessions.all() == []
        assert not list(it.groups.membership.groups())
        await it.open("a", group="alone")
        await it.open("b", group="pops", broadcast=True)
        assert used == [(77, "pops", DeliveryMode.OFFSETS), (77, "alone", DeliveryMode.OFFSETS)]


@in_virtual_time
async def test_sessions_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is referred to another snode, and is not recorded here. When one has ended there is space again."""
    async with bench() as it:
        monkeypatch.setattr(it.sessions._sessions, "capacity", 2)
        first = await it.open("a")
        await it.open("b")
        with pytest.raises(Overloaded, match="2 sessions are open on this snode; use another") as refusal:
            await it.open("c")
        assert refusal.value.retry_after_ms == 5_000
        assert list(members(it)) == ["a", "b"]
        await it.sessions.close(first, CloseReason.CLIENT_LEFT, "bye")
        await it.open("c")


@in_virtual_time
async def test_a_clients_next_session_takes_the_place_of_the_one_before() -> None:
    """The first gets the reason; the group continues with the second, and so do its queues."""
    async with bench() as it:
        first = await it.open("same")
        await it.rest()
        second = await it.open("same")
        assert await closed(first) == (
            CloseReason.REPLACED,
            "another session of client same has replaced this one; give each client a unique id",
        )
        assert it.sessions.all() == [second]
        assert members(it) == {"same": second.session_id}
        await it.store(0, b"a")
        assert (await event(second, Delivery)).queue == QUEUES[0]


@in_virtual_time
async def test_a_session_whose_follower_has_left_already_ends_as_well() -> None:
    """The shared store sent both at once: it is no longer a member, and would not share with others."""
    async with bench() as it:
        session = await it.open()
        await it.rest()
        for one in ("another's", "nobody's"):
            member = dataclasses.replace(it.groups.membership.members("g")["c"], session_id=one)
            it.groups.membership.join("g", member)
        it.groups.membership.leave("g", "c", "nobody's")
        assert (await closed(session))[0] is CloseReason.REPLACED
        assert (it.sessions.all(), session.feeders) == ([], {})


@in_virtual_time
async def test_a_session_that_meets_a_failure_ends_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others continue."""
    async with bench() as it:
        other = await it.open("other", group="h")

        async def acquire(group: str, *_: Any) -> None:
            if group == "g":
                raise ValueError("a defect")

        monkeypatch.setattr(it.groups, "acquire", acquire)
        session = await it.open()
        assert await closed(session) == (
            CloseReason.EXPIRED,
            "the snode failed to serve the session and logged the details; open another session",
        )
        assert it.sessions.all() == [other]


@in_virtual_time
async def test_who_does_not_read_while_the_memory_is_used_up_is_ended_and_what_waits_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It gets the reason, and counts as slow. The log names it."""
    async with bench() as it:
        session = await it.open()
        await it.store(0, b"a" * 1000)
        await it.rest()
        assert session.memory.unread_bytes > 1000
        it.sessions.evicted_count = 3
        with caplog.at_level(logging.WARNING):
            session.memory.evict("the memory is used up")
        assert caplog.text.count(log_events.SLOW_CONSUMER_EVICTED.name) == 1
        assert session.memory.unread_bytes == 0
        await it.rest()
        assert await closed(session) == (CloseReason.SLOW_CONSUMER, "the memory is used up")
        assert (it.sessions.evicted_count, it.sessions.all()) == (4, [])


@in_virtual_time
async def test_other_subscriptions_count_unless_they_are_older_or_those_of_a_session_that_was_replaced() -> None:
    """The group assigns the topics again, and deliveries follow the filter."""
    async with bench() as it:
        it.directory.update_topic(dataclasses.replace(TOPIC, name="u", topic_id=78))
        session = await it.open()
        await it.sessions.subscribe(session, [Subscription("u", "x", version=5)])
        assert set(session._filters) == {"u"}
        assert it.groups.membership.members("g")["c"].topics == {"u"}
        await it.sessions.subscribe(session, [Subscription("u", "y", version=4), Subscription("t")])
        assert it.groups.membership.members("g")["c"].subscriptions == (
            Subscription("t"),
            Subscription("u", "x", version=5),
        )
        with pytest.raises(NotFound):
            await it.sessions.subscribe(session, wanted("unknown"))
        with pytest.raises(Invalid) as empty:
            await it.sessions.subscribe(session, [])
        assert empty.value.field == "subscribe.subscriptions"
        assert set(session._filters) == {"t", "u"}
        second = await it.open()
        await it.sessions.subscribe(session, wanted("t"))
        assert set(session._filters) == {"t", "u"}
        assert set(second._filters) == {"t"}
        await it.sessions.close(second, CloseReason.CLIENT_LEFT, "bye")
        await it.sessions.subscribe(second, wanted("u"))
        assert set(second._filters) == {"t"}
        assert members(it) == {}


@in_virtual_time
async def test_a_client_with_a_session_of_its_own_stays_a_member_when_its_push_session_ends() -> None:
    """It is no longer active, and gets no queues; unless another session has replaced it."""
    async with bench() as it:
        session = await it.open(member_session_id="client's")
        assert members(it) == {"c": "client's"}
        await it.sessions.close(session, CloseReason.CLIENT_LEFT, "bye")
        left = it.groups.membership.members("g")["c"]
        assert (left.session_id, left.active) == ("client's", False)
        assert left.topics == {"t"}
        it.groups.membership.join("g", dataclasses.replace(left, active=True))
        await it.sessions.close(session, CloseReason.CLIENT_LEFT, "again")
        assert it.groups.membership.members("g")["c"].active
        second = await it.open(member_session_id="client's")
        it.groups.membership.join("g", dataclasses.replace(left, session_id="another's", active=True))
        await it.sessions.close(second, CloseReason.CLIENT_LEFT, "bye")
        assert it.groups.membership.members("g")["c"].active


@in_virtual_time
async def test_a_client_that_opens_its_push_session_again_goes_on_with_its_queues() -> None:
    """The broken one before it, of the same session of the client, ends later without effect."""
    async with bench() as it:
        await it.open(member_session_id="client's")
        await it.rest()
        second = await it.open(member_session_id="client's")
        await it.rest()
        assert it.sessions.all() == [second]
        assert it.groups.membership.members("g")["c"].active
        await it.store(0, b"a")
        assert (await event(second, Delivery)).queue == QUEUES[0]


@in_virtual_time
async def test_a_session_that_ends_while_its_new_topics_are_looked_up_is_no_member_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise its queues would have no owner. The client's requests meanwhile count together with it."""
    async with bench() as it:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def get_topic(name: str) -> Topic:
            asked.set()
            await answer.wait()
            return dataclasses.replace(TOPIC, name=name, topic_id=78)

        monkeypatch.setattr(it.watch, "_name_server", SimpleNamespace(get_topic=get_topic))
        for ends in (True, False):
            session = await it.open(member_session_id="client's")
            subscribing = it.parts.background.spawn("subscribe", it.sessions.subscribe(session, wanted("t", "u")))
            await asked.wait()
            if ends:
                await it.sessions.close(session, CloseReason.SLOW_CONSUMER, "slow")
                it.groups.membership.leave("g", "c", "client's")
            else:
                member = it.groups.membership.members("g")["c"]
                it.groups.membership.join("g", dataclasses.replace(member, room="north"))
            answer.set()
            await subscribing
            assert members(it) == ({} if ends else {"c": "client's"})
            answer.clear()
            asked.clear()
            it.directory.apply(DirectoryUpdate(it.directory.version + 1, deleted_topics=("u",)))
        member = it.groups.membership.members("g")["c"]
        assert member.room == "north"
        assert member.topics == {"t", "u"}


@in_virtual_time
async def test_a_client_that_does_not_take_the_reason_has_a_minute_to() -> None:
    """Then its connection is ended, if its call has not ended; without a call there is no one to notify."""
    async with bench() as it:
        calls: Any = object()
        deaf: list[str] = []
        sessions = {name: await it.open(name) for name in ("deaf", "gone", "alone")}
        for name, session in sessions.items():
            session.memory.on_unresponsive = lambda name=name: deaf.append(name)
            session.call = None if name == "alone" else calls
        await it.sessions.close_all(CloseReason.SHUTDOWN, "the snode stops")
        assert [await closed(one) for one in sessions.values()] == [(CloseReason.SHUTDOWN, "the snode stops")] * 3
        it.sessions.on_call_ended(sessions["gone"])
        await it.rest(CLOSE_TIMEOUT_S)
        await it.sessions.sweep()
        assert deaf == []
        await it.rest()
        await it.sessions.sweep()
        assert deaf == ["deaf"]
        sessions["deaf"].memory.is_unresponsive = False
        await it.sessions.sweep()
        assert deaf == ["deaf"]


@in_virtual_time
async def test_a_silent_session_is_ended() -> None:
    """A session heard within the expiry is not; clients must send something four times as often."""
    async with bench() as it:
        assert it.sessions.heartbeat_interval_ms == EXPIRY_S * 1000 / 4 == 15_000
        silent, loud = await it.open("silent"), await it.open("loud")
        at_s = silent.last_active_s
        await it.rest(at_s + EXPIRY_S - it.clock.monotonic_s())
        await it.sessions.sweep()
        assert it.sessions.all() == [silent, loud]
        loud.touch()
        await it.rest()
        await it.sessions.sweep()
        await it.rest()
        assert it.sessions.all() == [loud]
        assert await closed(silent) == (
            CloseReason.EXPIRED,
            "the client sent nothing for 60 s; send heartbeats, and open another session",
        )
        assert it.sessions.evicted_count == 0


@in_virtual_time
async def test_a_session_may_be_silent_for_as_long_as_it_was_told() -> None:
    """Also if others may not any more, or its client would beat in time and be ended."""
    async with bench() as it:
        before = await it.open("before")
        it.sessions.expiry_s = EXPIRY_S / 4
        await it.open("after")
        await it.rest(EXPIRY_S / 2)
        await it.sessions.sweep()
        await it.rest()
        assert it.sessions.all() == [before]
        await it.rest(EXPIRY_S / 2)
        await it.sessions.sweep()
        await it.rest()
        assert it.sessions.all() == []


@in_virtual_time
async def test_sessions_of_a_group_that_is_closed_end() -> None:
    """Or those of them that may not consume so."""
    async with bench() as it:
        shared, broadcast = await it.open("shared"), await it.open("broadcast", broadcast=True)
        it.directory.update_group(Group("g", 2, broadcast_enabled=False))
        await it.sessions.sweep()
        await it.rest()
        assert it.sessions.all() == [shared]
        assert await closed(broadcast) == (
            CloseReason.GROUP_CLOSED,
            "group g may not consume as broadcast; AdminService/UpdateGroup allows it",
        )
        it.directory.update_group(Group("g", 3, consume_enabled=False))
        await it.sessions.sweep()
        reason, message = await closed(shared)
        assert reason is CloseReason.GROUP_CLOSED
        assert "it is disabled" in message
