"""The members of groups, shared among snodes, and the assignment of queues to them.

The package takes joins and departures, here and at other snodes, and returns assignments. Sessions, pulls and the
operators' services import it.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from ortoo.common.errors.findings import Findings
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.membership.consumer_groups import ConsumerGroups
from ortoo.snode.membership.group_membership import Membership
from ortoo.snode.membership.shared_membership import SharedMembership
from ortoo.snode.membership.store import MembershipStore


@contextlib.asynccontextmanager
async def open_membership(
    runtime: Runtime, cluster: ClusterView, connect_redis: Callable[[str], Any], findings: Findings
) -> AsyncIterator[ConsumerGroups]:
    """Yield the members of all groups. With a `redis_url`, snodes share them through that server during the block.

    `findings` shows a finding while the server does not answer. Errors: Invalid for the URL.
    """
    settings, clock = runtime.settings, runtime.clock
    async with contextlib.AsyncExitStack() as stack:
        membership: Membership = Membership(clock)
        if settings.redis_url:
            membership = shared = SharedMembership(runtime.incarnation, clock)
            store = MembershipStore(runtime, connect_redis(settings.redis_url), shared)
            await stack.enter_async_context(store.open())
            runtime.metrics.gauge(
                "ortoo_membership_store_up",
                "1 while the shared membership store answers.",
                lambda: int(store.connected.is_set()),
            )
            findings.sources.append(store.findings)
            identity = findings.identity
            findings.identity = lambda: replace(identity(), membership_store=store.identity)
        groups = ConsumerGroups(cluster.directory, membership, clock)
        cluster.watch.on_topics_changed = groups.on_topics_changed
        groups.find_topics = cluster.watch.find_lite_topics
        yield groups
