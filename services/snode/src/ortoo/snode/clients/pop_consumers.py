"""Lists the consumers that pop, so that operators see them at every snode.

Their membership is only for display: no queues are assigned to them. It is kept apart from the members of the group,
so that a client id of a popping consumer never replaces or excludes another member.
"""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ortoo.common.errors import Overloaded
from ortoo.common.grpc.limits.connections import address_of
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.membership.fair_table import FairTable
from ortoo.snode.membership.group_members import GroupMember, Subscription, merge_subscriptions
from ortoo.snode.membership.group_membership import POP_GROUP_PREFIX, Membership
from ortoo.snode.policy.principal import PRINCIPAL, owner_at

CONSUMERS_MAX = 20_000
"""Maximum number of listed consumers of one snode; further ones are served and not listed."""
TOPICS_MAX = 100
"""Maximum number of listed topics of one consumer."""
EXPIRY_S = 30.0
"""Time after its last pop for which a consumer without messages is listed."""
LEASE_EXPIRY_S_MAX = 300.0
"""Maximum of this time for a consumer with messages, which is otherwise the time of their lease."""


@dataclass(slots=True, eq=False)
class ListedConsumer:
    """One popping consumer of one group."""

    group: str
    member: GroupMember
    open_pops: int = 0
    until_s: float = 0.0
    """Without open pops it is listed until this monotonic time."""


class PopConsumers:
    """The popping consumers of this snode. Each is listed during its pops and for a while after the last one."""

    def __init__(self, runtime: Runtime, membership: Membership) -> None:
        self._runtime = runtime
        self._membership = membership
        self._listed: FairTable[ListedConsumer] = FairTable(CONSUMERS_MAX, "popping consumers are listed")
        runtime.metrics.gauge(
            "ortoo_pop_consumers",
            "Native consumers that pop, or popped a moment ago.",
            lambda: Counter((one.group,) for _, one in self._listed.items()),
            labels=("consumer_group",),
        )

    @contextlib.contextmanager
    def popping(
        self, group: str, client_id: str, peer: str, subscription: Subscription
    ) -> Iterator["ListedConsumer | None"]:
        """List a consumer during a pop; None if there are too many. Without `client_id` its address is its name."""
        listed = self._find_or_add(group, client_id or peer, peer)
        if listed is None:
            yield None
            return
        self._subscribe(listed, subscription)
        listed.open_pops += 1
        try:
            yield listed
        finally:
            listed.open_pops -= 1
            listed.until_s = max(listed.until_s, self._runtime.clock.monotonic_s() + EXPIRY_S)

    def on_leased(self, listed: ListedConsumer | None, invisible_ms: int) -> None:
        """Note that a consumer received messages under a lease."""
        if listed is not None:
            held_s = min(invisible_ms / 1000, LEASE_EXPIRY_S_MAX)
            listed.until_s = max(listed.until_s, self._runtime.clock.monotonic_s() + held_s)

    async def sweep(self) -> None:
        """Remove the consumers that have stopped popping; to be called every few seconds."""
        now_s = self._runtime.clock.monotonic_s()
        for key, one in list(self._listed.items()):
            if not one.open_pops and one.until_s < now_s:
                self._listed.remove(key)
                self._membership.leave(POP_GROUP_PREFIX + one.group, one.member.client_id, one.member.session_id)

    def _find_or_add(self, group: str, client_id: str, peer: str) -> ListedConsumer | None:
        key, runtime = f"{group}/{client_id}", self._runtime
        listed = self._listed.get(key)
        if listed is None:
            member = GroupMember(
                client_id,
                runtime.randomness.id_text(),
                runtime.settings.name,
                runtime.incarnation,
                pushed=False,
                active=False,
                peer=peer,
                since_ms=runtime.clock.now_ms(),
                user=PRINCIPAL.get().user,
            )
            listed = ListedConsumer(group, member)
            try:
                self._listed.put(key, listed, owner_at(address_of(peer)))
            except Overloaded:
                return None
        return listed

    def _subscribe(self, listed: ListedConsumer, subscription: Subscription) -> None:
        before = {one.topic: one for one in listed.member.subscriptions}
        if before.get(subscription.topic) != subscription and len(before) < TOPICS_MAX:
            after = merge_subscriptions((), (before | {subscription.topic: subscription}).values())
            listed.member = dataclasses.replace(listed.member, subscriptions=after)
        self._membership.join(POP_GROUP_PREFIX + listed.group, listed.member)
