"""The lite topics that clients subscribe to. A restart of the snode loses them; clients send them repeatedly."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from apache.rocketmq.v2.definition_pb2 import Code, LiteSubscriptionAction, OffsetOption
from apache.rocketmq.v2.service_pb2 import SyncLiteSubscriptionRequest, SyncLiteSubscriptionResponse
from ortoo.common.directory.topic import MessageType
from ortoo.common.errors import Overloaded
from ortoo.common.process.clock import Clock
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.rocketmq.clients.settings_reply import LITE_TOPICS_MAX
from ortoo.snode.rocketmq.lite.owners import LiteOwners
from ortoo.snode.rocketmq.lite.topics import LiteTopics
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError, ok_status
from ortoo.snode.rocketmq.protocol.names import group_name, lite_topic_of, stored_topic, topic_name

TOTAL_MAX = 100_000
EXPIRY_S = 180.0
"""Timeout after which an unrepeated subscription is dropped; clients repeat it every 30 s."""


@dataclass(slots=True)
class LiteSubscription:
    """The lite topics to which one client subscribes, all below one parent topic."""

    group: str
    parent: str
    lite_topics: frozenset[str] = frozenset()
    updated_at_s: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the lite topics have changed, and then replaced."""


class LiteSubscriptions:
    """The subscriptions to lite topics of all clients of this snode."""

    def __init__(
        self,
        notify_unsubscribed: Callable[[str, str], None] = lambda client_id, lite_topic: None,
        release: Callable[[str, str, str, Iterable[str]], None] = lambda client_id, group, parent, lite_topics: None,
    ) -> None:
        """`notify_unsubscribed` notifies a client of an ended subscription.

        `release` frees lite topics that a client gives up.
        """
        self.notify_unsubscribed = notify_unsubscribed
        self._release = release
        self._by_client: dict[str, LiteSubscription] = {}
        self._by_group: dict[str, dict[str, LiteSubscription]] = {}
        self._total = 0

    def check_parent(self, group: str, parent: str) -> None:
        """Refuse a parent topic if members of the group subscribe below another one.

        Errors: GrpcProxyError with ILLEGAL_TOPIC.
        """
        subscription = next(iter(self._by_group.get(group, {}).values()), None)
        if subscription is not None and subscription.parent != parent:
            raise GrpcProxyError(
                Code.ILLEGAL_TOPIC, f"group {group} receives lite topics of {subscription.parent}, not of {parent}"
            )

    def check_plain(self, group: str) -> None:
        """Refuse a receive of all lite topics if members of the group subscribe to some of them.

        Errors: GrpcProxyError with ILLEGAL_CONSUMER_GROUP.
        """
        if any(one.lite_topics for one in self._by_group.get(group, {}).values()):
            raise GrpcProxyError(
                Code.ILLEGAL_CONSUMER_GROUP,
                f"members of group {group} subscribe to single lite topics; use another group to receive all of them",
            )

    def is_subscribed(self, client_id: str) -> bool:
        """Whether a client has subscribed to lite topics."""
        subscription = self._by_client.get(client_id)
        return subscription is not None and bool(subscription.lite_topics)

    def get_or_create(self, client_id: str, group: str, parent: str, now_s: float) -> LiteSubscription:
        """The subscription of a client; a missing subscription is created without lite topics."""
        subscription = self._by_client.get(client_id)
        if subscription is None or (subscription.group, subscription.parent) != (group, parent):
            self.remove(client_id)
            subscription = self._by_client[client_id] = LiteSubscription(group, parent, updated_at_s=now_s)
            self._by_group.setdefault(group, {})[client_id] = subscription
        return subscription

    def set_lite_topics(self, subscription: LiteSubscription, names: frozenset[str], now_s: float) -> None:
        """Replace the lite topics of a subscription by `names`.

        Errors: GrpcProxyError if the client has too many lite topics, Overloaded if all clients together have too many.
        """
        self._check_quota(subscription, names)
        subscription.updated_at_s = now_s
        if names != subscription.lite_topics:
            self._total += len(names) - len(subscription.lite_topics)
            subscription.lite_topics = names
            subscription.changed.set()
            subscription.changed = asyncio.Event()

    def items(self) -> list[tuple[str, LiteSubscription]]:
        """The subscription of each client."""
        return list(self._by_client.items())

    def revoke(self, client_id: str, names: Collection[str]) -> None:
        """Remove lite topics from a client's subscription, and notify the client, because it did not request this."""
        subscription = self._by_client.get(client_id)
        if subscription is not None and names:
            self.set_lite_topics(subscription, subscription.lite_topics.difference(names), subscription.updated_at_s)
        for name in names:
            self.notify_unsubscribed(client_id, name)

    def revoke_from_others(self, client_id: str, group: str, names: Collection[str]) -> None:
        """Remove lite topics of an exclusive group from all its clients except `client_id`, the new subscriber."""
        for other, subscription in list(self._by_group.get(group, {}).items()):
            if other != client_id:
                self.revoke(other, subscription.lite_topics.intersection(names))

    def check_quota(self, client_id: str, names: Collection[str]) -> None:
        """Refuse further lite topics for a client if there would be too many. Errors: as `set_lite_topics`."""
        subscription = self._by_client.get(client_id) or LiteSubscription("", "")
        self._check_quota(subscription, subscription.lite_topics.union(names))

    def remove(self, client_id: str) -> None:
        """Remove the subscription of a client."""
        removed = self._by_client.pop(client_id, None)
        if removed is None:
            return
        members = self._by_group[removed.group]
        del members[client_id]
        if not members:
            del self._by_group[removed.group]
        self._total -= len(removed.lite_topics)
        self._release(client_id, removed.group, removed.parent, removed.lite_topics)
        removed.lite_topics = frozenset()
        removed.changed.set()

    def remove_expired(self, now_s: float) -> None:
        """Remove subscriptions that their clients have not repeated in time."""
        for client_id, one in list(self._by_client.items()):
            if now_s - one.updated_at_s > EXPIRY_S:
                self.remove(client_id)

    def _check_quota(self, subscription: LiteSubscription, names: frozenset[str]) -> None:
        if len(names) > LITE_TOPICS_MAX:
            message = f"{len(names)} lite topics for one client; give at most {LITE_TOPICS_MAX}"
            raise GrpcProxyError(Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, message)
        if self._total + len(names) - len(subscription.lite_topics) > max(TOTAL_MAX, self._total):
            raise Overloaded(f"clients of this snode have {self._total} lite topics, the maximum; use another snode")


@dataclass(frozen=True, slots=True)
class LiteSubscriptionActivity:
    """The call SyncLiteSubscription."""

    watch: DirectoryWatch
    subscriptions: LiteSubscriptions
    lite_topics: LiteTopics
    owners: LiteOwners
    clock: Clock

    async def sync(self, caller: Caller, request: SyncLiteSubscriptionRequest) -> SyncLiteSubscriptionResponse:
        """Change the lite topics of a client. Lite topics without a message need not exist.

        Errors: GrpcProxyError, NotFound, Overloaded, Unavailable.
        """
        group, parent_name = group_name(request.group), topic_name(request.topic)
        names = set(request.lite_topic_set)
        if len(names) > LITE_TOPICS_MAX:
            message = f"{len(names)} lite topics at once; give at most {LITE_TOPICS_MAX} for one client"
            raise GrpcProxyError(Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, message)
        if request.HasField("offset_option") and not _is_last(request.offset_option):
            message = "only OffsetOption LAST is supported: a group continues at its offset, or at the first message"
            raise GrpcProxyError(Code.NOT_IMPLEMENTED, message)
        parent = await self.watch.topic(parent_name)
        if parent.message_type is not MessageType.LITE:
            raise GrpcProxyError(
                Code.ILLEGAL_TOPIC, f"topic {parent.name} cannot have lite topics; create a topic with `--type lite`"
            )
        self.subscriptions.check_parent(group, parent.name)
        adds = request.action in (LiteSubscriptionAction.PARTIAL_ADD, LiteSubscriptionAction.COMPLETE_ADD)
        for name in sorted(names) if adds else ():
            stored_topic(parent.name, name)
        if self.owners.is_exclusive(group) and adds:
            queues = await self._owned_queues(parent, sorted(names), request.action)
            names -= await self._update_owners(caller.client_id, group, queues, request.action)
        now_s = self.clock.monotonic_s()
        subscription = self.subscriptions.get_or_create(caller.client_id, group, parent.name, now_s)
        match request.action:
            case LiteSubscriptionAction.PARTIAL_ADD:
                self.subscriptions.set_lite_topics(subscription, subscription.lite_topics | names, now_s)
            case LiteSubscriptionAction.PARTIAL_REMOVE:
                self.subscriptions.set_lite_topics(subscription, subscription.lite_topics - names, now_s)
                self.owners.release(caller.client_id, group, parent.name, names)
            case LiteSubscriptionAction.COMPLETE_ADD:
                self.subscriptions.set_lite_topics(subscription, frozenset(names), now_s)
            case LiteSubscriptionAction.COMPLETE_REMOVE:
                self.subscriptions.remove(caller.client_id)
            case _:
                raise GrpcProxyError(Code.BAD_REQUEST, f"{request.action} is not an action of a lite subscription")
        return SyncLiteSubscriptionResponse(status=ok_status())

    async def _owned_queues(
        self, parent: Topic, names: Sequence[str], action: LiteSubscriptionAction.ValueType
    ) -> list[Queue]:
        """The queues of lite topics, which store the owners of an exclusive group.

        Only new subscriptions create missing ones, because others may have expired.
        """
        if action == LiteSubscriptionAction.PARTIAL_ADD:
            return [await self.lite_topics.ensure(parent, name) for name in names]
        await self.lite_topics.load(parent, names)
        return [queue for name in names if (queue := self.lite_topics.queue(parent, name)) is not None]

    async def _update_owners(
        self, client_id: str, group: str, queues: Sequence[Queue], action: LiteSubscriptionAction.ValueType
    ) -> set[str]:
        """Make this client the owner of lite topics, or return the lite topics that it lost. Errors: as `sync`."""
        if action == LiteSubscriptionAction.PARTIAL_ADD:
            names = [lite_topic_of(queue.topic) for queue in queues]
            self.subscriptions.check_quota(client_id, names)
            await self.owners.acquire(group, client_id, queues)
            self.subscriptions.revoke_from_others(client_id, group, names)
            return set()
        # The client repeats its subscription; it may not have been notified yet that another client took a topic over.
        _, lost = await self.owners.still_owned(group, client_id, queues)
        self.subscriptions.revoke(client_id, lost)
        return set(lost)


def _is_last(option: OffsetOption) -> bool:
    return option.WhichOneof("offset_type") == "policy" and option.policy == OffsetOption.LAST
