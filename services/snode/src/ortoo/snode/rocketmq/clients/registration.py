"""Makes RocketMQ's clients group members, so that operators see them at every snode.

The membership is only for display. These clients are never assigned queues, because they pop.
"""

from dataclasses import dataclass
from typing import Any

from apache.rocketmq.v2.definition_pb2 import ClientType, FilterType, SubscriptionEntry
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.membership.group_members import GroupMember, Subscription
from ortoo.snode.membership.group_membership import PRODUCER_GROUP_PREFIX, Membership
from ortoo.snode.rocketmq.clients.table import ConnectedClient, Registration

PUSH_TYPES = frozenset({ClientType.PUSH_CONSUMER, ClientType.LITE_PUSH_CONSUMER})


@dataclass(frozen=True, slots=True)
class ClientRegistration:
    """The group memberships of RocketMQ's clients. A producer's group has the name of the topic that it sends to."""

    membership: Membership
    runtime: Runtime

    async def register(self, client: ConnectedClient) -> None:
        """Make a client a member of exactly the groups in its settings.

        Errors: Forbidden if another user's client, at any snode, has this client id in one of the groups.
        """
        for group in _groups_of(client):
            await self.membership.follow(group)
        self._register(client)

    def register_now(self, client: ConnectedClient) -> bool:
        """The same without waiting; False if the members of a group are not known yet. Errors: as `register`."""
        if not all(map(self.membership.is_known, _groups_of(client))):
            return False
        self._register(client)
        return True

    def is_current(self, client: ConnectedClient) -> bool:
        """Whether `register` would change nothing, because neither the client nor its memberships have changed."""
        registered, members_of = client.registered, self.membership.members
        if registered is None or client.has_ended or registered.inputs != _inputs_of(client):
            return False
        for group, member in registered.members.items():  # noqa: SIM110 - thousands of heartbeats a second pass here
            if members_of(group).get(client.client_id) is not member:
                return False
        return True

    def _register(self, client: ConnectedClient) -> None:
        client.registered = None
        if client.has_ended:
            return
        if not client.session_id:
            client.session_id = self.runtime.randomness.id_text()
            client.member_since_ms = self.runtime.clock.now_ms()
        groups = _groups_of(client)
        for group in groups:
            if (member := self.membership.members(group).get(client.client_id)) is not None:
                client.principal.check_owner(member.user, "client id", "x-mq-client-id")
        for group in sorted(client.member_of - groups):
            self.membership.leave(group, client.client_id, client.session_id)
        for group in sorted(groups):
            if not self._is_elsewhere(group, client):
                self.membership.join(group, self._member(client, consumes=group == client.group))
        client.member_of = groups
        members = {group: self.membership.members(group).get(client.client_id) for group in groups}
        own = {group: one for group, one in members.items() if one is not None and one.session_id == client.session_id}
        if own.keys() == groups:
            client.registered = Registration(_inputs_of(client), own)

    def unregister(self, client: ConnectedClient) -> None:
        """Remove a client from all groups, because it has disconnected."""
        client.has_ended = True
        for group in sorted(client.member_of):
            self.membership.leave(group, client.client_id, client.session_id)

    async def find_member(self, group: str, client_id: str) -> GroupMember | None:
        """The group member with this client id; it may be connected to another snode."""
        await self.membership.follow(group)
        return self.membership.members(group).get(client_id)

    def _is_elsewhere(self, group: str, client: ConnectedClient) -> bool:
        """Whether another snode has the client's stream; commands must then go there."""
        member = self.membership.members(group).get(client.client_id)
        return client.stream is None and member is not None and member.session_id != client.session_id

    def _member(self, client: ConnectedClient, *, consumes: bool) -> GroupMember:
        return GroupMember(
            client.client_id,
            client.session_id,
            self.runtime.settings.name,
            self.runtime.incarnation,
            _subscriptions(client) if consumes else (),
            pushed=consumes and client.client_type in PUSH_TYPES,
            active=False,
            language=client.language,
            client_version=client.client_version,
            peer=client.peer,
            since_ms=client.member_since_ms,
            user=client.principal.user,
        )


def _inputs_of(client: ConnectedClient) -> tuple[Any, ...]:
    """Everything of a client that determines its memberships. Published topics are only ever added."""
    return (
        client.group,
        len(client.published_topics),
        client.stream is None,
        client.client_type,
        client.settings,
        client.language,
        client.client_version,
        client.peer,
        client.principal,
    )


def _subscriptions(client: ConnectedClient) -> tuple[Subscription, ...]:
    if client.settings is None:
        return ()
    return tuple(sorted(map(_subscription, client.settings.subscription.subscriptions), key=lambda one: one.topic))


def _subscription(entry: SubscriptionEntry) -> Subscription:
    expression = entry.expression.expression
    if entry.expression.type == FilterType.SQL:
        return Subscription(entry.topic.name, sql_expression=expression)
    return Subscription(entry.topic.name, expression)


def _groups_of(client: ConnectedClient) -> set[str]:
    groups = {PRODUCER_GROUP_PREFIX + topic for topic in client.published_topics}
    return groups | {client.group} if client.group else groups
