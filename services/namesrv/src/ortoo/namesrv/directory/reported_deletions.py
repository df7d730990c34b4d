"""The deletions that enodes are told: when they become due, when they are forgotten, and when they are told again."""

import contextlib
from collections.abc import Callable
from functools import partial
from itertools import chain, islice
from typing import Protocol, TypeVar

from ortoo.common.errors import DataLoss, Unavailable
from ortoo.common.process.clock import Clock
from ortoo.namesrv.catalog.transaction import CatalogTransaction
from ortoo.namesrv.decisions import deletions
from ortoo.namesrv.decisions.orphaned_topics import OrphanedTopics
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.routes.route_changes import Routes
from ortoo.namesrv.directory import deletion

T = TypeVar("T")


class StoreChange(Protocol):
    """Stores a change, then serves and publishes it. Errors: Unavailable, DataLoss."""

    async def __call__(self, decide: Callable[[CatalogTransaction], tuple[T, RouteChange | None]]) -> T:
        """The first result of `decide`; its second is the change for watchers, None = store nothing."""


class ReportedDeletions:
    """The deletions that `routes` report.

    Too many are not reported, and the earliest are forgotten. The database keeps those that an enode with the topic may
    not have carried out. They are reported again when such an enode offers the topic.
    """

    def __init__(self, routes: Routes, orphaned: OrphanedTopics, change: StoreChange, clock: Clock) -> None:
        self._routes = routes
        self._orphaned = orphaned
        self._change = change
        self._clock = clock
        self._confirmed: dict[str, int] = {}
        """For each enode the version of the directory up to which it has carried out all deletions."""
        self._compared_version = 0
        """The version of the offered topics that were compared with forgotten deletions; -1 = compare them again."""

    def confirm(self, enode: str, version: int) -> None:
        """Note that an enode has carried out all deletions up to a version of this directory.

        A version beyond the directory's is of a database that was replaced by an older one. Deletions that follow are
        new to the enode.
        """
        self._confirmed[enode] = min(version, self._routes.version)

    def drop_enode(self, enode: str) -> None:
        """Drop what a forgotten enode has confirmed."""
        self._confirmed.pop(enode, None)

    async def expire(self) -> None:
        """Report deletions whose grace period has expired as due, and forget old ones."""
        now_ms, routes = self._clock.now_ms(), self._routes
        known, groups_known = routes.deleted, routes.deleted_groups
        if now_ms < routes.next_expiry_ms and not deletions.has_too_many(known, groups_known):
            return
        ended = deletions.due_topics(known.values(), now_ms)
        expired = deletions.expired_deletions(known, now_ms) - {one.topic_id for one in ended}
        old = set(islice(expired, deletions.CHANGED_AT_ONCE_MAX))
        if old or ended:
            confirmed = deletions.confirmed_deletions(
                [known[topic_id] for topic_id in old], routes.due_versions, self._confirmed
            )
            with contextlib.suppress(Unavailable, DataLoss):  # counted, and retried later
                mark = partial(deletion.mark_due_topics, ended, old, confirmed, now_ms)
                routes.forget_deletions(await self._change(mark))
                self._compared_version = -1 if old - confirmed else self._compared_version
        told = deletions.expired_deletions(groups_known, now_ms)
        if told or any(not one.is_due and one.due_at_ms <= now_ms for one in groups_known.values()):
            with contextlib.suppress(Unavailable, DataLoss):
                for name in told | await self._change(partial(deletion.mark_due_groups, now_ms)):
                    groups_known.pop(name, None)
        routes.next_expiry_ms = deletions.next_expiry_ms(chain(known.values(), groups_known.values()))

    async def report_again(self) -> None:
        """Report forgotten deletions of topics that enodes offer, if there are other offers than at the last call."""
        version, offers = self._orphaned.version, self._orphaned.snapshot()
        if version != self._compared_version:
            topic_ids = offers.topic_ids() - self._routes.deleted.keys()
            with contextlib.suppress(Unavailable, DataLoss):  # counted, and retried later
                report = partial(deletion.report_again, offers, topic_ids, self._clock.now_ms())
                is_complete = await self._change(report) if topic_ids else True
                self._compared_version = version if is_complete else -1
