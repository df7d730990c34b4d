"""The reasons why a group does not consume, derived from its observed state, the most important first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ortoo.common.logs.counts import counted
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.enodes.link import DeferredMessage, LagByState
from ortoo.snode.pull.queue_reader import PlacedMessage
from ortoo.snode.push.evictions import Eviction
from ortoo.snode.rpc.operators.explanation.message_trace import BlockingMessage
from ortoo.v1 import delivery_pb2 as pb

FAILING_ATTEMPTS_MIN = 3
HOLDERS_SHOWN_MAX = EVICTIONS_SHOWN_MAX = 5
RETENTION_USED_MAX = 0.75
"""The share of its retention that the oldest message may use before it is a reason."""


class Cause(NamedTuple):
    """A reason why a group does not consume; its name never changes."""

    name: str
    observed: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class GroupQueueState:
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
    holders: Sequence[str] = ()
    """The consumers that hold leased messages."""


@dataclass(frozen=True, slots=True)
class SilentConsumer:
    """A push consumer that holds messages of a queue and acknowledges nothing."""

    client_id: str
    queue: Queue
    held_messages: int
    waiting_ms: int


@dataclass(frozen=True, slots=True)
class ConsumptionState:
    """The observed state of a group's consumption of a topic."""

    group: str
    topic: Topic
    is_known: bool
    is_enabled: bool
    consumers: int
    """Number of consumers of the group, in any mode."""
    filters: Sequence[str]
    """The filters of the group's members for the topic."""
    is_matched: bool
    """Whether one of the filters matches the message."""
    queues: Sequence[GroupQueueState]
    enodes_away: Sequence[str]
    message: PlacedMessage | None
    delivery: pb.MessageDelivery | None
    """The delivery state of the message."""
    now_ms: int
    backlog: LagByState = LagByState()
    """The group's unfinished messages of the topic, with those of all its topics that wait in retries."""
    blocking: BlockingMessage | None = None
    """The earlier message for which the message waits."""
    silent: Sequence[SilentConsumer] = ()
    evictions: Sequence[Eviction] = ()
    """The recent ends of push sessions of the group at this snode, because their clients acknowledged nothing."""


def find_reasons(state: ConsumptionState) -> list[Cause]:
    """The reasons why a group in this state does not consume; at least one."""
    if state.delivery is not None and (final := _of_done(state, state.delivery)) is not None:
        return [final]
    found = [
        *_of_rights(state),
        *_of_blocking(state),
        *_of_message(state),
        *_of_consumers(state),
        *_of_retries(state),
        *_of_silent(state),
        *_of_queues(state),
        *_of_retention(state),
    ]
    return found or [Cause("no backlog", f"group {state.group} has consumed all of {state.topic.name}")]


def cause_of_deferred(topic: Topic, deferred: DeferredMessage, now_ms: int) -> Cause:
    """Why no group gets a delayed message, or a message of an open transaction."""
    half = deferred.half
    if half is None:
        observed = f"the message is delayed for another {_seconds(deferred.deliver_at_ms - now_ms)}"
        return Cause("not due", observed, f"ortoo delay list {topic.name} shows the delayed messages of the topic")
    checks = "it is parked and not checked any more" if half.parked else f"it was checked {half.checks} times"
    observed = (
        f"the message belongs to a transaction of producer group {half.producer_group}, which has been open for "
        f"{_seconds(now_ms - half.stored_at_ms)}; {checks}"
    )
    remedy = f"ortoo tx list --topic {topic.name} shows the transaction; its producer, or ortoo tx commit ID, ends it"
    return Cause("open transaction", observed, remedy)


def _of_done(state: ConsumptionState, row: pb.MessageDelivery) -> Cause | None:
    if row.state == pb.DELIVERY_STATE_ACKNOWLEDGED:
        return Cause(
            "acknowledged",
            f"group {state.group} has finished the message: a consumer acknowledged it, or it did not match the filter",
        )
    if row.state == pb.DELIVERY_STATE_PARKED:
        remedy = f"ortoo dlq list {state.group} shows it; ortoo dlq replay {state.group} sends it again"
        return Cause("parked", f"the message is a dead letter after {row.attempt} attempts: {row.error}", remedy)
    return None


def _of_rights(state: ConsumptionState) -> Iterator[Cause]:
    if not state.topic.readable:
        observed = f"topic {state.topic.name} is {state.topic.permission.name.lower()}"
        yield Cause("permission", observed, f"ortoo topic update {state.topic.name} --permission read_write")
    if not state.is_known:
        remedy = "check its name (ortoo group list); a group exists once its first consumer has connected"
        yield Cause("unknown group", f"there is no group {state.group}, and it has never consumed the topic", remedy)
    elif not state.is_enabled:
        yield Cause(
            "group disabled", f"group {state.group} may not consume", f"ortoo group update {state.group} --consume"
        )
    for enode in state.enodes_away:
        yield Cause("enode unavailable", f"enode {enode} does not answer: its queues are blocked", "run ortoo doctor")


def _of_blocking(state: ConsumptionState) -> Iterator[Cause]:
    """An earlier message that has to be finished first."""
    if state.blocking is None:
        return
    row = state.blocking.row
    name = f"message {state.blocking.message_id or 'without id'} (offset {row.offset} of {state.topic.name})"
    if row.state == pb.DELIVERY_STATE_LEASED:
        at = f"{row.consumer or 'a consumer'} has it for another {_seconds(row.until_ms - state.now_ms)}"
    else:
        at = f"the next attempt is in {_seconds(row.until_ms - state.now_ms)}"
    error = f" ({row.error})" if row.error else ""
    observed = f"it waits behind {name}, attempt {row.attempt}, {at}{error}"
    remedy = f"ortoo explain {state.group} {state.topic.name} {state.blocking.message_id} explains that message"
    yield Cause("behind another message", observed, remedy)


def _of_silent(state: ConsumptionState) -> Iterator[Cause]:
    """Push consumers whose handlers hang or are slow, except those that wait for the retry of a message."""
    if state.message is None:
        for evicted in state.evictions[:EVICTIONS_SHOWN_MAX]:
            remedy = (
                "look at its log and at its stacks (py-spy dump), because its handler hangs or is slow. "
                f"For slower handlers: ortoo group update {state.group} --slow-grace-ms MS"
            )
            yield Cause("slow consumer", str(evicted), remedy)
    retried = {one.queue for one in state.queues if one.delayed and one.attempt}
    for one in state.silent:
        if one.queue not in retried and (state.message is None or state.message.queue == one.queue):
            observed = (
                f"{one.client_id} has {counted(one.held_messages, 'message')} of {one.queue} and has acknowledged "
                f"nothing for {_seconds(one.waiting_ms)}"
            )
            remedy = "its handler hangs or is slow: look at the log of that consumer and at its stacks (py-spy dump)"
            yield Cause("silent consumer", observed, remedy)


def _of_message(state: ConsumptionState) -> Iterator[Cause]:
    row, message = state.delivery, state.message
    if row is None or message is None:
        return
    expires_ms = message.message.expire_at_ms or 0
    if 0 < expires_ms <= state.now_ms:
        yield Cause("expired", f"the message expired {_seconds(state.now_ms - expires_ms)} ago and is not delivered")
    if row.state == pb.DELIVERY_STATE_LEASED:
        who = row.consumer or "a consumer"
        observed = f"{who} has the message for another {_seconds(row.until_ms - state.now_ms)} (attempt {row.attempt})"
        yield Cause(
            "leased", observed, "wait until the lease ends and the message is redelivered, or check that consumer's log"
        )
    if row.state == pb.DELIVERY_STATE_DELAYED:
        said = f" ({row.consumer or 'a consumer'} reported: {row.error})" if row.error else ""
        observed = f"attempt {row.attempt} failed and the next one is in {_seconds(row.until_ms - state.now_ms)}{said}"
        yield Cause("delayed", observed, f"ortoo group describe {state.group} shows the group's back-off")
    if state.filters and not state.is_matched:
        wanted, tag = ", ".join(state.filters), message.message.tag or "empty"
        yield Cause(
            "filter", f"the message does not match the filters of the group's consumers, {wanted}; its tag is {tag}"
        )


def _of_consumers(state: ConsumptionState) -> Iterator[Cause]:
    pops = any(one.pops for one in state.queues)
    behind = sum(one.behind for one in state.queues) + (0 if pops else state.backlog.retrying)
    if behind and not state.consumers:
        observed = f"group {state.group} has no consumer, and {counted(behind, 'message', 'wait')}"
        yield Cause("no consumers", observed, "start a consumer of this group, and look at its log")
    elif behind and state.consumers and not state.filters:
        observed = f"the consumers of {state.group} subscribe to other topics (ortoo group describe {state.group})"
        yield Cause("not subscribed", observed, f"subscribe a consumer to {state.topic.name}")
    elif behind and pops and not any(one.leased or one.delayed for one in state.queues):
        observed = f"{counted(behind, 'message', 'wait')}, and no consumer of {state.group} has or requests messages"
        yield Cause("no pop requests", observed, "start a consumer of this group, and look at its log (ortoo clients)")


def _of_retries(state: ConsumptionState) -> Iterator[Cause]:
    """Failed messages that wait for their next attempt, for the topic as a whole."""
    backlog = state.backlog
    if state.message is not None or not backlog.retrying:
        return
    attempts = f" after up to {backlog.attempts} attempts" if backlog.attempts else ""
    due = _seconds(backlog.next_retry_at_ms - state.now_ms)
    error = f"; the last error of {backlog.consumer or 'a consumer'}: {backlog.error}" if backlog.error else ""
    observed = f"{counted(backlog.retrying, 'message', 'wait')} in retries{attempts}, the next one for {due}{error}"
    yield Cause(
        "retrying", observed, f"look at the consumers' logs; ortoo group describe {state.group} shows the backlog"
    )


def _of_retention(state: ConsumptionState) -> Iterator[Cause]:
    """Messages that retention deleted, or soon deletes, before the group finishes them."""
    backlog, remedy = state.backlog, "raise store.retention_age_ms or store.retention_bytes, or run more consumers"
    if backlog.lost:
        observed = f"retention deleted {counted(backlog.lost, 'message')} before group {state.group} finished them"
        yield Cause("lost to retention", observed, remedy)
    if backlog.retention_used > RETENTION_USED_MAX:
        observed = f"the oldest unfinished message has used {backlog.retention_used:.0%} of its retention"
        yield Cause("retention nearly used up", observed, remedy)


def _of_queues(state: ConsumptionState) -> Iterator[Cause]:
    if blocked := next((one.blocked for one in state.queues if one.blocked), ""):
        yield Cause(
            "in flight", blocked, f"let consumers acknowledge, or ortoo group update {state.group} --in-flight N"
        )
    failing = max((one for one in state.queues), key=lambda one: one.attempt, default=None)
    if failing is not None and failing.attempt >= FAILING_ATTEMPTS_MIN:
        said = f" (a consumer reported: {failing.error})" if failing.error else ""
        observed = f"messages of {failing.queue} fail repeatedly (attempt {failing.attempt}){said}"
        yield Cause("failing handler", observed, f"ortoo delivery {state.group} {state.topic.name} lists them")
    if state.message is None:
        leased, delayed = sum(one.leased for one in state.queues), sum(one.delayed for one in state.queues)
        if leased:
            holders = ", ".join(sorted({name for one in state.queues for name in one.holders})[:HOLDERS_SHOWN_MAX])
            by = f", by {holders}" if holders else ""
            yield Cause("leased", f"{leased} of the next messages are leased and not acknowledged{by}")
        if delayed:
            yield Cause("delayed", f"{delayed} of the next messages failed and are delivered again later")
        if (
            not state.silent
            and not state.evictions
            and not leased
            and not delayed
            and (behind := sum(one.behind for one in state.queues))
            and state.consumers
        ):
            observed = f"{counted(behind, 'message', 'wait')} for {counted(state.consumers, 'consumer')}"
            yield Cause(
                "consumer lag", observed, f"ortoo lag {state.group} {state.topic.name}; more or faster consumers"
            )
    elif state.delivery is not None and state.delivery.state == pb.DELIVERY_STATE_OUTSTANDING:
        held = state.queues[0]
        yield Cause("queued", f"the group is {counted(held.behind, 'message')} behind in {held.queue} (in order)")
    elif state.delivery is not None and state.delivery.state == pb.DELIVERY_STATE_WAITING:
        yield Cause("queued", "the message waits until a consumer requests messages")


def _seconds(time_ms: int) -> str:
    return f"{max(0, time_ms) / 1000:.0f} s"
