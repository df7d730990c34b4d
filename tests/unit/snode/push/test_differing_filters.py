"""A pushed queue at messages that only other members' filters select."""

from ortoo.common.filters.message_filter import compile_filter
from ortoo.common.records.batch import Message, encode
from ortoo.snode.enodes.link import FlushMode
from ortoo.snode.membership.group_members import GroupMember, Subscription
from ortoo.snode.push.feeder import FILTER_WAIT_S
from ortoo.snode.push.outbox import Delivery
from ortoo.verification.time.virtual_time import in_virtual_time
from tests.unit.snode.push.push_bench import Bench, bench, event


async def store(it: Bench, *tags: str) -> None:
    """One batch, with a message of each tag."""
    batch = encode([Message(b"body", tag) for tag in tags], now_ms=1)
    await it.enode.append(77, 0, batch, FlushMode.DEFAULT)


@in_virtual_time
async def test_it_waits_for_a_deployment_and_not_for_ever() -> None:
    """Members whose filters differ for ever lose the message, so that their queues do not stand still."""
    async with bench() as it:
        other = GroupMember("b", "s", subscriptions=(Subscription("t", "y"),), active=False)
        it.groups.membership.join("g", other)
        await store(it, "x", "y", "x")
        session = await it.open("a", filters={"t": compile_filter("x", "")})
        first = await event(session, Delivery)
        assert (first.messages, first.last_message_offset, first.next_offset) == (1, 0, 1)
        later = it.parts.background.spawn("later", event(session, Delivery))
        await it.rest(FILTER_WAIT_S - 10.0)
        assert not later.done()
        await it.rest(20.0)
        second = await later
        assert (second.messages, second.last_message_offset, second.next_offset) == (1, 2, 3)


@in_virtual_time
async def test_it_continues_when_the_other_member_has_left() -> None:
    """Then no member wants the message."""
    async with bench() as it:
        it.groups.membership.join("g", GroupMember("b", "s", subscriptions=(Subscription("t", "y"),), active=False))
        await store(it, "y", "x")
        session = await it.open("a", filters={"t": compile_filter("x", "")})
        found = it.parts.background.spawn("found", event(session, Delivery))
        await it.rest(5.0)
        assert not found.done()
        it.groups.membership.leave("g", "b", "s")
        assert (await found).last_message_offset == 1


@in_virtual_time
async def test_messages_that_no_member_wants_are_skipped() -> None:
    """Even while the filters differ."""
    async with bench() as it:
        it.groups.membership.join("g", GroupMember("b", "s", subscriptions=(Subscription("t", "y"),), active=False))
        await store(it, "x", "x")
        session = await it.open("a", filters={"t": None})
        assert (await event(session, Delivery)).messages == 2
