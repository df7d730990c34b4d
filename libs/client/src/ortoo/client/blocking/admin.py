"""What operators do, for programs without an event loop."""

from collections.abc import Iterator, Sequence

from ortoo.client.admin.admin import Admin as AsyncAdmin
from ortoo.client.admin.descriptions import (
    ClusterInfo,
    DelayedMessage,
    FoundMessages,
    GroupInfo,
    GroupLag,
    OpenTransaction,
    TopicDescription,
    TopicInfo,
)
from ortoo.client.blocking.groups import GroupAdmin
from ortoo.client.blocking.loop_thread import LoopThread
from ortoo.client.core.filters import Filter, Sql
from ortoo.client.produce.transactions import Verdict
from ortoo.client.read.dead_letters import DeadLetter, PeekedMessage, ReplayProgress
from ortoo.client.read.tailing import StoredMessage


class Admin:
    """An operator's calls; see `ortoo.client.Admin`."""

    def __init__(self, thread: LoopThread, admin: AsyncAdmin) -> None:
        """`Client.admin` is the way in."""
        self._thread = thread
        self._admin = admin
        self.groups = GroupAdmin(thread, admin.groups)
        """What concerns groups and clients."""

    def create_topic(
        self,
        name: str,
        *,
        queue_count: int = 0,
        permission: str = "read_write",
        message_type: str = "any",
        enodes: Sequence[str] = (),
    ) -> TopicInfo:
        """Create a topic with so many queues on each enode; 0 = 4."""
        created = self._admin.create_topic(
            name, queue_count=queue_count, permission=permission, message_type=message_type, enodes=enodes
        )
        return self._thread.wait(created)

    def list_topics(self) -> list[TopicInfo]:
        """All topics, by name."""
        return self._thread.wait(self._admin.list_topics())

    def describe_topic(self, name: str) -> TopicDescription:
        """One topic with what its queues hold."""
        return self._thread.wait(self._admin.describe_topic(name))

    def update_topic(
        self,
        name: str,
        *,
        read_queue_count: int = 0,
        write_queue_count: int = 0,
        permission: str = "",
        add_enodes: Sequence[str] = (),
        publish_order: Sequence[tuple[str, int]] | None = None,
    ) -> TopicInfo:
        """Change a topic; 0, empty and None leave as it is."""
        return self._thread.wait(
            self._admin.update_topic(
                name,
                read_queue_count=read_queue_count,
                write_queue_count=write_queue_count,
                permission=permission,
                add_enodes=add_enodes,
                publish_order=publish_order,
            )
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its messages."""
        self._thread.wait(self._admin.delete_topic(name))

    def ensure_topic(self, name: str, *, queue_count: int = 0) -> TopicInfo:
        """Create a topic unless it is there already."""
        return self._thread.wait(self._admin.ensure_topic(name, queue_count=queue_count))

    def list_groups(self) -> list[GroupInfo]:
        """All groups, by name."""
        return self._thread.wait(self._admin.list_groups())

    def describe_group(self, name: str) -> GroupInfo:
        """One group."""
        return self._thread.wait(self._admin.describe_group(name))

    def put_group(
        self,
        name: str,
        *,
        consume_enabled: bool = True,
        slow_consumer_threshold_messages: int = 0,
        slow_consumer_grace_ms: int = 0,
    ) -> GroupInfo:
        """Create a group or change it; 0 = the default."""
        return self._thread.wait(
            self._admin.put_group(
                name,
                consume_enabled=consume_enabled,
                slow_consumer_threshold_messages=slow_consumer_threshold_messages,
                slow_consumer_grace_ms=slow_consumer_grace_ms,
            )
        )

    def delete_group(self, name: str) -> None:
        """Delete a group."""
        self._thread.wait(self._admin.delete_group(name))

    def consumer_count(self, group: str) -> int:
        """How many consumers a group has now, on whichever snode."""
        return self._thread.wait(self._admin.consumer_count(group))

    def lag(self, group: str, topic: str) -> GroupLag:
        """How far a group is behind."""
        return self._thread.wait(self._admin.lag(group, topic))

    def describe_cluster(self) -> ClusterInfo:
        """The processes of the cluster."""
        return self._thread.wait(self._admin.describe_cluster())

    def find_messages(
        self, topic: str, *, key: str = "", message_id: str = "", begin_ms: int = 0, end_ms: int = 0, limit: int = 0
    ) -> FoundMessages:
        """Messages with a key, or the one with an id; the newest first."""
        found = self._admin.find_messages(
            topic, key=key, message_id=message_id, begin_ms=begin_ms, end_ms=end_ms, limit=limit
        )
        return self._thread.wait(found)

    def list_delayed(self, topic: str, *, from_ms: int = 0, limit: int = 100) -> list[DelayedMessage]:
        """The delayed messages of a topic, by time."""
        return self._thread.wait(self._admin.list_delayed(topic, from_ms=from_ms, limit=limit))

    def list_transactions(
        self, *, topic: str = "", producer_group: str = "", parked_only: bool = False, limit: int = 100
    ) -> list[OpenTransaction]:
        """Open transactions, the oldest first."""
        listed = self._admin.list_transactions(
            topic=topic, producer_group=producer_group, parked_only=parked_only, limit=limit
        )
        return self._thread.wait(listed)

    def end_transaction(self, transaction_id: str, verdict: Verdict) -> None:
        """Commit or roll back in the producer's stead."""
        self._thread.wait(self._admin.end_transaction(transaction_id, verdict))

    def resume_transaction(self, transaction_id: str) -> None:
        """Ask the producers about a parked transaction again."""
        self._thread.wait(self._admin.resume_transaction(transaction_id))

    def tail(
        self, topic: str, *, from_first: bool = False, follow: bool = True, messages_max: int = 0, wanted: Filter = "*"
    ) -> Iterator[StoredMessage]:
        """Messages of all queues of a topic."""
        source = self._admin.tail(topic, from_first=from_first, follow=follow, messages_max=messages_max, wanted=wanted)
        return self._thread.iterate(source)

    def tail_last(
        self, topic: str, count: int, *, follow: bool = True, wanted: Filter = "*"
    ) -> Iterator[StoredMessage]:
        """The newest messages of a topic, at most so many, then those that come."""
        return self._thread.iterate(self._admin.tail_last(topic, count, follow=follow, wanted=wanted))

    def dead_letters(
        self, group: str, where: Sql | None = None, *, letters_max: int = 0, with_replayed: bool = False
    ) -> Iterator[DeadLetter]:
        """The dead letters of a group, by enode, oldest first; 0 = all."""
        letters = self._admin.dead_letters(group, where, letters_max=letters_max, with_replayed=with_replayed)
        return self._thread.iterate(letters)

    def replay_dead_letters(
        self,
        group: str,
        where: Sql | None = None,
        *,
        to_topic: str = "",
        messages_per_s: int = 0,
        messages_max: int = 0,
        dry_run: bool = False,
    ) -> Iterator[ReplayProgress]:
        """Send dead letters again, each once; iterate to its end, each item says how far it has come."""
        replay = self._admin.replay_dead_letters(
            group,
            where,
            to_topic=to_topic,
            messages_per_s=messages_per_s,
            messages_max=messages_max,
            dry_run=dry_run,
        )
        return self._thread.iterate(replay)

    def peek(self, topic: str, group: str = "", *, messages_max: int = 10) -> list[PeekedMessage]:
        """The next messages of a topic for a group that pops; without a group the oldest. Nobody notices."""
        return self._thread.wait(self._admin.peek(topic, group, messages_max=messages_max))
