"""Group members as plain values, their text in the shared store, the slow-consumer rule and close reasons."""

import dataclasses
import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ortoo.common.errors import Unsupported
from ortoo.common.groups.allocation import AllocationStrategy
from ortoo.common.grpc.enum_values import known_or
from ortoo.snode.cluster.routes import Queue


class CloseReason(enum.IntEnum):
    """The reason for the end of a session; the values are those of the protobuf enum."""

    CLIENT_LEFT = 1
    SLOW_CONSUMER = 2
    EXPIRED = 3
    SHUTDOWN = 4
    REPLACED = 5
    GROUP_CLOSED = 6


FORMAT = 1


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic that a group member consumes, with its filter."""

    topic: str
    tag_expression: str = ""
    sql_expression: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A client as a member of one group."""

    client_id: str
    """The member's name in the group. Queues are assigned in the order of client ids."""
    session_id: str
    snode: str = ""
    incarnation: str = ""
    """The incarnation of the snode."""
    subscriptions: tuple[Subscription, ...] = ()
    pushed: bool = True
    """Whether the member uses a push session; otherwise it pulls."""
    active: bool = True
    """Whether queues are assigned to the member."""
    broadcast: bool = False
    """Whether the member receives all messages of its topics."""
    strategy: AllocationStrategy = AllocationStrategy.AVERAGELY
    configured: tuple[Queue, ...] = ()
    """With AllocationStrategy.CONFIG: the queues that the member takes."""
    rooms: tuple[str, ...] = ()
    """With AllocationStrategy.MACHINE_ROOM: the availability zones whose queues are assigned."""
    room: str = ""
    language: str = ""
    client_version: str = ""
    peer: str = ""
    since_ms: int = 0
    user: str = ""
    """The user of the client. No other user may replace the member."""

    @property
    def topics(self) -> frozenset[str]:
        """The topics to which the member subscribes."""
        return frozenset(one.topic for one in self.subscriptions)

    @property
    def pops(self) -> bool:
        """Whether the member is a consumer that requests messages by pops."""
        return not self.active and not self.pushed

    @property
    def is_assigned_queues(self) -> bool:
        """Whether the member takes part in the assignment of queues."""
        return self.active and not self.broadcast

    def encode(self) -> str:
        """The text of this member in the shared store."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields["subscriptions"] = [dataclasses.astuple(one) for one in self.subscriptions]
        if not self.user:
            del fields["user"]  # older snodes do not know the field
        return json.dumps({"format": FORMAT} | fields, separators=(",", ":"))


def decode_member(text: str | bytes) -> GroupMember:
    """Decode the text of a member in the shared store. An unknown strategy becomes AVERAGELY.

    Errors: Unsupported for another format.
    """
    data: dict[str, Any] = json.loads(text)
    if data.pop("format", 0) != FORMAT:
        raise Unsupported("a member of a group was written by a newer snode; upgrade this one")
    data["subscriptions"] = tuple(Subscription(*one) for one in data["subscriptions"])
    data["configured"] = tuple(Queue(*one) for one in data["configured"])
    data["rooms"] = tuple(data["rooms"])
    data["strategy"] = known_or(AllocationStrategy, data["strategy"], AllocationStrategy.AVERAGELY)
    return GroupMember(**data)


def assignable_client_ids(members: Mapping[str, GroupMember]) -> list[str]:
    """The client ids of the members that take part in the assignment of queues, sorted."""
    return sorted(client_id for client_id, member in members.items() if member.is_assigned_queues)


def strategy_of(members: Mapping[str, GroupMember]) -> AllocationStrategy:
    """The strategy of a group: that of its first member, by client id, that takes part in the assignment."""
    first = min((client_id for client_id, member in members.items() if member.is_assigned_queues), default=None)
    return members[first].strategy if first is not None else AllocationStrategy.AVERAGELY


def merge_subscriptions(current: Iterable[Subscription], updated: Iterable[Subscription]) -> tuple[Subscription, ...]:
    """The subscriptions of a client after the update `updated`.

    For each topic, the subscription with the higher version is kept.
    """
    before = {one.topic: one for one in current}
    after: dict[str, Subscription] = {}
    for one in updated:
        previous = before.get(one.topic)
        after[one.topic] = previous if previous is not None and 0 < one.version < previous.version else one
    return tuple(after[topic] for topic in sorted(after))


@dataclass(frozen=True, slots=True)
class SlowConsumerRule:
    """The thresholds above which a member of a group is slow."""

    threshold_messages: int = 1024
    grace_s: float = 10.0

    def is_slow(
        self, *, newest_offset: int, acknowledged_offset: int | None, waiting_since_s: float | None, now_s: float
    ) -> bool:
        """Whether a group member is slow in one queue.

        `newest_offset` is the offset of the last stored message. `acknowledged_offset` is None if the group has no
        offset yet; the member is then not slow. `waiting_since_s` is the time since which an acknowledgement is due;
        None = no acknowledgement is due.
        """
        return (
            acknowledged_offset is not None
            and newest_offset - acknowledged_offset > self.threshold_messages
            and self.is_overdue(waiting_since_s, now_s)
        )

    def is_overdue(self, since_s: float | None, now_s: float) -> bool:
        """Whether the grace period after `since_s` has expired; None = no acknowledgement is due."""
        return since_s is not None and now_s - since_s >= self.grace_s
