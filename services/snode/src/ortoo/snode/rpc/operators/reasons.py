"""The reasons why a group does not consume, derived from its observed state, the most important first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.pull.queue_reader import PlacedMessage
from ortoo.v1 import delivery_pb2 as pb

TRIES_MANY = 3


class Reason(NamedTuple):
    """One reason; its name never changes."""

    name: str
    seen: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """The state of one queue for the group; counts are of its first unfinished messages."""

    queue: Queue
    behind: int
    """Number of unfinished messages."""
    pops: bool
    leased: int
    delayed: int
    blocked: str
    error: str
    """A consumer's error for a nacked message."""
    attempt: int


@dataclass(frozen=True, slots=True)
class Seen:
    """The observed state."""

    group: str
    topic: Topic
    is_known: bool
    is_enabled: bool
    consumers: int
    """Number of group members; consumers that pop are not counted."""
    filters: Sequence[str]
    """The filters of its group members for the topic."""
    is_wanted: bool
    """Whether one of them matches the message."""
    queues: Sequence[Held]
    away: Sequence[str]
    message: PlacedMessage | None
    delivery: pb.MessageDelivery | None
    """Of the message."""
    now_ms: int


def reasons(seen: Seen) -> list[Reason]:
    """Why the group does not consume; at least one."""
    if seen.delivery is not None and (final := _of_done(seen, seen.delivery)) is not None:
        return [final]
    found = [*_of_rights(seen), *_of_message(seen), *_of_consumers(seen), *_of_queues(seen)]
    return found or [Reason("no backlog", f"group {seen.group} has consumed all of {seen.topic.name}")]


def _of_done(seen: Seen, row: pb.MessageDelivery) -> Reason | None:
    if row.state == pb.DELIVERY_STATE_ACKNOWLEDGED:
        return Reason(
            "acknowledged",
            f"group {seen.group} has finished the message: a consumer acknowledged it, or it did not match the filter",
        )
    if row.state == pb.DELIVERY_STATE_PARKED:
        cure = f"ortoo dlq list {seen.group} shows it; ortoo dlq replay {seen.group} sends it again"
        return Reason("parked", f"it is a dead letter after {row.attempt} tries: {row.error}", cure)
    return None


def _of_rights(seen: Seen) -> Iterator[Reason]:
    if not seen.topic.readable:
        seen_as = f"topic {seen.topic.name} is {seen.topic.permission.name.lower()}"
        yield Reason("permission", seen_as, f"ortoo topic update {seen.topic.name} --permission read_write")
    if not seen.is_known:
        cure = "check its name (ortoo group list); a group exists once its first consumer has connected"
        yield Reason("unknown group", f"there is no group {seen.group}, and it has never consumed the topic", cure)
    elif not seen.is_enabled:
        yield Reason(
            "group disabled", f"group {seen.group} may not consume", f"ortoo group update {seen.group} --consume"
        )
    for enode in seen.away:
        yield Reason("enode unavailable", f"enode {enode} does not answer: its queues are blocked", "run ortoo doctor")


def _of_message(seen: Seen) -> Iterator[Reason]:
    row, message = seen.delivery, seen.message
    if row is None or message is None:
        return
    expires_ms = message.message.expire_at_ms or 0
    if 0 < expires_ms <= seen.now_ms:
        yield Reason("expired", f"it expired {_s(seen.now_ms - expires_ms)} ago and is not delivered")
    if row.state == pb.DELIVERY_STATE_LEASED:
        who = row.consumer or "a consumer"
        left = f"{who} has it for another {_s(row.until_ms - seen.now_ms)} (try {row.attempt})"
        yield Reason("leased", left, "wait, or check that consumer's log; then it is redelivered automatically")
    if row.state == pb.DELIVERY_STATE_DELAYED:
        said = f" ({row.consumer or 'a consumer'} reported: {row.error})" if row.error else ""
        left = f"attempt {row.attempt} failed and the next one is in {_s(row.until_ms - seen.now_ms)}{said}"
        yield Reason("delayed", left, f"ortoo group describe {seen.group} shows the group's back-off")
    if seen.filters and not seen.is_wanted:
        wanted, tag = ", ".join(seen.filters), message.message.tag or "empty"
        yield Reason("filter", f"it does not match the filters of the group's consumers, {wanted}; its tag is {tag}")


def _of_consumers(seen: Seen) -> Iterator[Reason]:
    behind = sum(one.behind for one in seen.queues)
    pops = any(one.pops for one in seen.queues)
    if behind and not seen.consumers and not pops:
        there = f"group {seen.group} has no consumer, and {behind} messages wait"
        yield Reason("no consumers", there, "start a consumer of this group, and look at its log")
    elif behind and seen.consumers and not seen.filters:
        there = f"the consumers of {seen.group} subscribe to other topics (ortoo group describe {seen.group})"
        yield Reason("not subscribed", there, f"subscribe one to {seen.topic.name}")
    elif behind and pops and not any(one.leased or one.delayed for one in seen.queues):
        there = f"{behind} messages wait, and no consumer of {seen.group} has any: none asks"
        yield Reason("no pop requests", there, "start a consumer of this group, and look at its log (ortoo clients)")


def _of_queues(seen: Seen) -> Iterator[Reason]:
    if blocked := next((one.blocked for one in seen.queues if one.blocked), ""):
        yield Reason(
            "in flight", blocked, f"let consumers acknowledge, or ortoo group update {seen.group} --in-flight N"
        )
    failing = max((one for one in seen.queues), key=lambda one: one.attempt, default=None)
    if failing is not None and failing.attempt >= TRIES_MANY:
        said = f" (a consumer reported: {failing.error})" if failing.error else ""
        there = f"messages of {failing.queue} fail repeatedly (attempt {failing.attempt}){said}"
        yield Reason("failing handler", there, f"ortoo delivery {seen.group} {seen.topic.name} lists them")
    if seen.message is None:
        leased, delayed = sum(one.leased for one in seen.queues), sum(one.delayed for one in seen.queues)
        if leased:
            yield Reason("leased", f"{leased} of the next messages are leased and not acknowledged")
        if delayed:
            yield Reason("delayed", f"{delayed} of the next messages failed and are delivered again later")
        if not leased and not delayed and (behind := sum(one.behind for one in seen.queues)) and seen.consumers:
            there = f"{behind} messages wait for {seen.consumers} consumers"
            yield Reason("consumer lag", there, f"ortoo lag {seen.group} {seen.topic.name}; more or faster consumers")
    elif seen.delivery is not None and seen.delivery.state == pb.DELIVERY_STATE_OUTSTANDING:
        held = seen.queues[0]
        yield Reason("queued", f"the group is {held.behind} messages behind in {held.queue}, which is one by one")
    elif seen.delivery is not None and seen.delivery.state == pb.DELIVERY_STATE_WAITING:
        yield Reason("queued", "it waits for a consumer to ask for it")


def _s(time_ms: int) -> str:
    return f"{max(0, time_ms) / 1000:.0f} s"
