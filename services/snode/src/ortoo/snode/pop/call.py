"""A consumer's pop request, and its result."""

from collections.abc import Sequence
from dataclasses import dataclass

from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.groups.pop import PoppedBatch, PopRules
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.pop.receipt_handle import ReceiptHandle


@dataclass(frozen=True, slots=True)
class PopCall:
    """A consumer's pop request."""

    group: str
    topic: str
    messages_max: int
    invisible_ms: int
    wait_ms: int
    consumer: str = ""
    attempt_id: str = ""
    message_filter: MessageFilter | None = None
    rules: PopRules = PopRules(attempts_max=0)
    """With `attempts_max` 0, the setting of the group applies."""
    queue: Queue | None = None
    """Only this queue. None = all queues of the topic and of the group's retry topic."""


@dataclass(frozen=True, slots=True)
class PoppedMessages:
    """Leased messages of one stored batch, and the handle of their lease."""

    queue: Queue
    handle: ReceiptHandle
    popped: PoppedBatch


@dataclass(frozen=True, slots=True)
class PopResult:
    """The answer to a consumer's pop."""

    batches: list[PoppedMessages]
    blocked_reason: str = ""
    has_others: bool = False
    """Whether messages were left to other members, whose filters differ."""
    is_empty: bool = True
    """Whether the enodes had no messages, not even ones that the filter left out."""


@dataclass(frozen=True, slots=True)
class PopSource:
    """The queues of one topic on one enode."""

    topic: Topic
    enode: str
    queue_ids: tuple[int, ...]


def merge(results: Sequence[PopResult]) -> PopResult:
    """The results of several sources as one."""
    batches = [batch for answer in results for batch in answer.batches]
    blocked_reason = "" if batches else next((one.blocked_reason for one in results if one.blocked_reason), "")
    has_others, is_empty = any(one.has_others for one in results), all(one.is_empty for one in results)
    return PopResult(batches, blocked_reason, has_others, is_empty)
