"""Delayed messages across the enodes: listing, and recall by handle."""

from dataclasses import dataclass

from ortoo.common.errors import Invalid
from ortoo.common.groups.handle import Handle, HandleKind, read_handle
from ortoo.common.groups.handle_seal import HandleSeals
from ortoo.common.groups.system_topics import DELAYED_TOPIC_ID
from ortoo.common.records.message_id import message_id_text
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.directory import check_client_writes
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import EnodeLinks

LIST_DEFAULT = 100
LIST_MAX = 10_000


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """One delayed message."""

    message_id: str
    """The generated id, which is used unless the producer chose one."""
    recall_handle: str
    queue: Queue
    deliver_at_ms: int


class DelayedMessages:
    """Lists and recalls delayed messages."""

    def __init__(self, cluster: ClusterView, links: EnodeLinks) -> None:
        self._seals = cluster.directory.seals
        self._cluster = cluster
        self._links = links

    async def recall(self, recall_handle: str) -> str:
        """Recall a delayed message; returns the message id that the server generated for it.

        Errors: Invalid for a wrong handle, NotFound if the message was delivered or recalled, Conflict during its
        delivery, Forbidden for a delayed retry.
        """
        handle = read_handle(recall_handle, HandleKind.DELAYED, "recall_handle", self._seals)
        check_client_writes(self._cluster.directory.topic_name(handle.topic_id), "recall_handle")
        await self._links.to(handle.enode).recall_delayed(handle.topic_id, handle.number, handle.time_ms)
        return delayed_message_id(handle.enode, handle.number)

    async def list_messages(self, topic_name: str, from_ms: int, limit: int) -> list[DelayedMessage]:
        """The delayed messages of a topic, sorted by delivery time. Those on unreachable enodes are left out.

        Errors: Invalid.
        """
        if not 0 <= limit <= LIST_MAX:
            raise Invalid(f"{limit}; give at most {LIST_MAX}", field="limit")
        topic, limit = await self._cluster.watch.topic(topic_name), limit or LIST_DEFAULT
        found: list[DelayedMessage] = []
        answers = await self._links.ask_all(
            topic.enodes, lambda link: link.list_delayed(topic.topic_id, from_ms, limit)
        )
        for enode, entries in answers.items():
            for one in entries:
                queue = Queue(topic.name, enode, one.queue_id)
                handle = make_recall_handle(self._seals, queue, topic.topic_id, one.timer_id, one.deliver_at_ms)
                found.append(DelayedMessage(delayed_message_id(enode, one.timer_id), handle, queue, one.deliver_at_ms))
        return sorted(found, key=lambda one: (one.deliver_at_ms, one.message_id))[:limit]


def delayed_message_id(enode: str, timer_id: int) -> str:
    """The id of a delayed message without an id of its producer; the id stays the same after the delivery."""
    return message_id_text(DELAYED_TOPIC_ID, enode, 0, timer_id)


def make_recall_handle(seals: HandleSeals, queue: Queue, topic_id: int, timer_id: int, deliver_at_ms: int) -> str:
    """The recall handle of a delayed message."""
    return Handle(HandleKind.DELAYED, queue.enode, topic_id, queue.queue_id, timer_id, deliver_at_ms).encoded(seals)
