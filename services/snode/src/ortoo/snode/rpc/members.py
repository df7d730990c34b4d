"""Members of groups and their subscriptions, between plain values and the wire."""

from collections.abc import Iterable

from ortoo.common.errors import Invalid
from ortoo.common.groups.allocation import AllocationStrategy
from ortoo.snode.clients.session import ConsumerRequest, GroupMembers
from ortoo.snode.cluster.wire import queue_of
from ortoo.snode.membership.members import Member, Subscription, sharing, strategy_of
from ortoo.v1 import consumer_pb2, session_pb2


def strategy(number: int) -> AllocationStrategy:
    """A strategy, read. Errors: Invalid for one that this version does not know."""
    try:
        return AllocationStrategy(number or AllocationStrategy.AVERAGELY)
    except ValueError:
        raise Invalid(
            f"{number} is no strategy; give one of 1 to {len(AllocationStrategy)}", field="strategy"
        ) from None


def subscriptions(items: Iterable[consumer_pb2.Subscription]) -> tuple[Subscription, ...]:
    """Subscriptions, read."""
    return tuple(Subscription(one.topic, one.tag_expression, one.sql_expression, one.version) for one in items)


def consumer_wish(wish: session_pb2.RegisterConsumer) -> ConsumerRequest:
    """How a client wants to be a member. Errors: Invalid."""
    return ConsumerRequest(
        wish.group,
        subscriptions(wish.subscriptions),
        pushed=wish.consume_type == session_pb2.CONSUME_TYPE_PUSH,
        broadcast=wish.message_model == consumer_pb2.MESSAGE_MODEL_BROADCAST,
        strategy=strategy(wish.strategy),
        configured=tuple(map(queue_of, wish.configured_queues)),
        rooms=tuple(wish.rooms),
    )


def members_changed(event: GroupMembers) -> session_pb2.MembersChanged:
    """The members of a group, written for those who share out queues."""
    client_ids = sharing(event.members)
    return session_pb2.MembersChanged(
        group=event.group,
        version=event.version,
        client_ids=client_ids,
        wanted=[session_pb2.MemberTopics(topics=sorted(event.members[one].topics)) for one in client_ids],
        rooms=[event.members[one].room for one in client_ids],
        strategy=strategy_of(event.members).value,  # type: ignore[arg-type]
    )


def member_to(member: Member) -> consumer_pb2.Member:
    """One member, written."""
    model = consumer_pb2.MESSAGE_MODEL_BROADCAST if member.broadcast else consumer_pb2.MESSAGE_MODEL_CLUSTERING
    return consumer_pb2.Member(
        client_id=member.client_id,
        session_id=member.session_id,
        snode=member.snode,
        language=member.language,
        client_version=member.client_version,
        subscriptions=[
            consumer_pb2.Subscription(
                topic=one.topic,
                tag_expression=one.tag_expression,
                sql_expression=one.sql_expression,
                version=one.version,
            )
            for one in member.subscriptions
        ],
        pushed=member.pushed,
        active=member.active,
        message_model=model,
        room=member.room,
        since_ms=member.since_ms,
    )
