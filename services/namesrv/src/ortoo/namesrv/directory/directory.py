"""The directory of the cluster: combines decisions, storage, leases and watchers."""

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from ortoo.common.cluster.sorted_names import SortedNames
from ortoo.common.directory.group import Group
from ortoo.common.errors import DataLoss, OrtooError, Overloaded, Unavailable
from ortoo.common.groups.handle_seal import HandleKey, HandleKeys
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.namesrv import log_events
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.catalog.transaction import CatalogTransaction
from ortoo.namesrv.decisions import deletions, groups, orphaned_topics, topics
from ortoo.namesrv.decisions.deletions import GroupDeletion, TopicDeletion
from ortoo.namesrv.decisions.groups import ALL_FIELDS, FieldSelection
from ortoo.namesrv.decisions.handle_keys import KeyRotation
from ortoo.namesrv.decisions.orphaned_topics import OrphanedTopic, OrphanedTopics, StoredTopic
from ortoo.namesrv.decisions.process_leases import Enode, ProcessLeases, Snode
from ortoo.namesrv.decisions.replicas import ReplicaSet
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.routes.route_changes import DIRECTORY_BYTES_MAX, Routes, StoredDirectory
from ortoo.namesrv.decisions.topics import ForgottenEnode, NewTopic, Topic, TopicChange
from ortoo.namesrv.directory import adoption, deletion, forgetting, key_rotation, lite_endings
from ortoo.namesrv.directory.lite_endings import EndedLiteTopics
from ortoo.namesrv.directory.reported_deletions import ReportedDeletions
from ortoo.namesrv.directory.synced_routes import SyncedRoutes
from ortoo.namesrv.directory.watches import RouteWatchers

T = TypeVar("T")
_log = get_logger("directory")


class Directory:
    """Topics and groups, stored and served from memory, and registered processes, which are only in memory."""

    def __init__(
        self,
        catalog: Catalog,
        stored: StoredDirectory,
        *,
        lease_s: float,
        deletion_grace_ms: int,
        group_deletion_grace_ms: int = 0,
        watchers_max: int,
        rotation: KeyRotation = KeyRotation(),  # noqa: B008  # it is frozen
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        """Start with the catalog's contents, `stored`; processes register again with their heartbeats."""
        self._catalog = catalog
        self._rotation = rotation
        self._unsigned_handles = stored.unsigned_handles
        self._routes = routes = Routes(stored, self._distributed_keys(stored.handle_keys))
        self._leases = ProcessLeases(lease_s)
        self.orphaned = OrphanedTopics()
        """The topics that enodes hold and that the directory lacks."""
        self._deletions = ReportedDeletions(routes, self.orphaned, self._change, clock)
        self.deletion_grace_ms = deletion_grace_ms
        self.group_deletion_grace_ms = group_deletion_grace_ms
        self.watches = RouteWatchers(routes, watchers_max=watchers_max, clock=clock)
        self._clock = clock
        self._randomness = randomness
        self.lease_ms = int(lease_s * 1000)
        self._synced = SyncedRoutes(routes, self.watches, self._distributed_keys)
        self._is_behind = asyncio.Event()
        self.outcomes = {"stored": 0, "refused": 0, "failed": 0}
        """The number of changes that were stored, that were refused, and that failed because of the database."""

    @property
    def version(self) -> int:
        """The version of the directory, which increases with every change of a topic or a group."""
        return self._routes.version

    @property
    def directory_id(self) -> str:
        """The id of the directory, the same on all its name servers."""
        return self._routes.directory_id

    @property
    def lists_version(self) -> Hashable:
        """Changes whenever the lists of deleted topics, deleted groups or orphaned topics do."""
        return self.version, len(self._routes.deleted), len(self._routes.deleted_groups), self.orphaned.version

    def processes(self) -> list[tuple[str, str, bool]]:
        """Each expected enode and each registered snode: its role, its name, and whether it is alive."""
        alive = {name for name, is_alive in self._leases.enode_liveness().items() if is_alive}
        enodes = [("enode", name, name in alive) for name in sorted(alive | self._routes.placed_enodes())]
        return enodes + [("snode", snode.name, snode.alive) for snode in self._leases.snodes().values()]

    def topic(self, name: str) -> Topic:
        """The topic with this name. Errors: Invalid, NotFound."""
        return topics.require_topic(name, self._routes.topics.get(name))

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name; the caller must not change the mapping."""
        return self._routes.topics

    @property
    def groups(self) -> Mapping[str, Group]:
        """All groups by name; the caller must not change the mapping."""
        return self._routes.groups

    def sorted_names(self) -> tuple[SortedNames, SortedNames]:
        """The names of all topics and of all groups, for lists."""
        return self._routes.topic_names, self._routes.group_names

    async def create_topic(self, request: NewTopic) -> Topic:
        """Create a topic; an existing topic with the same properties is returned instead.

        Errors: as `topics.with_defaults` and `topics.create_topic`; Conflict if enodes already hold a topic of this
        name.
        """
        request = topics.with_defaults(request)
        offered = () if request.ignore_orphaned else self.orphaned.find(request.name, self._routes.deleted)
        enodes = self._leases.enode_liveness()
        topic_id, now_ms = self._randomness.id64(), self._clock.now_ms()
        named, lite = topics.named_parent(request), self._routes.lite_counts

        def decide(stored: CatalogTransaction) -> tuple[Topic, RouteChange | None]:
            existing = stored.topic(request.name)
            parent = topics.parent_of(request, stored.topic(named) if named else None)
            if existing is None:
                orphaned_topics.check_not_orphaned(request.name, offered)
                if parent:
                    topics.check_lite_counts(parent, lite.of_parents[parent] + 1, lite.total + 1)
                else:
                    topics.check_count(stored.topic_count() - lite.total + 1)
            topic = topics.create_topic(
                request, existing, enodes, parent=parent, topic_id=topic_id, version=stored.version, now_ms=now_ms
            )
            return self._put_topic(stored, existing, topic)

        return await self._change(decide)

    async def update_topic(self, request: TopicChange) -> Topic:
        """Change a topic. Without a lifetime, its closed lite topics are opened. Errors: as `topics.change_topic`."""
        enodes = self._leases.enode_liveness()

        def decide(stored: CatalogTransaction) -> tuple[Topic, RouteChange | None]:
            existing = stored.topic(request.name)
            changed = topics.change_topic(request, existing, enodes, version=stored.version)
            topic, change = self._put_topic(stored, existing, changed)
            if existing is not None and change is not None:
                change = replace(change, topics=(topic, *lite_endings.open_closed(existing, topic, stored)))
            return topic, change

        return await self._change(decide)

    async def delete_topic(self, name: str, *, skip_grace_period: bool = False, version: int = 0) -> TopicDeletion:
        """Delete a topic; it can be restored unless `skip_grace_period`. Errors: as `deletion.delete_topic`."""
        grace_ms = 0 if skip_grace_period else self.deletion_grace_ms
        return await self._change(partial(deletion.delete_topic, name, version, self._clock.now_ms(), grace_ms))

    async def end_lite_topics(self, close: Mapping[str, int], delete: Mapping[str, int]) -> EndedLiteTopics:
        """Close and delete lite topics, given with their versions. Others and changed ones are left as they are."""
        now_ms, grace_ms = self._clock.now_ms(), self.deletion_grace_ms
        return await self._change(partial(lite_endings.end_lite_topics, close, delete, now_ms, grace_ms))

    async def undelete_topic(self, name: str, topic_id: int) -> Topic:
        """Restore a deleted topic. Errors: as `deletions.undelete`."""
        return await self._change(partial(deletion.undelete_topic, name, topic_id))

    def deleted_topics(self) -> Iterator[TopicDeletion]:
        """The deleted topics of this moment that can be restored, in no order."""
        return deletions.restorable(self._routes.deleted.values())

    async def expire_deletions(self) -> None:
        """Tell enodes to delete topics and groups whose grace period has expired, and forget old deletions."""
        await self._deletions.expire()
        await self._deletions.report_again()

    async def rotate_handle_keys(self) -> None:
        """Create a new key that seals receipt handles, if the newest key is old enough."""
        now_ms, known = self._clock.now_ms(), self._routes.handle_keys
        if known is not None and not self._rotation.is_due(known.keys, now_ms):
            return
        made = HandleKey(1 + self._randomness.below((1 << 32) - 1), self._randomness.key_bytes(), now_ms)
        try:
            await self._change(partial(key_rotation.add_key, self._rotation, made, self._unsigned_handles))
        except (Unavailable, DataLoss) as error:  # counted, and retried later
            _log.emit(log_events.HANDLE_KEY_ROTATION_FAILED, reason=str(error))

    def _distributed_keys(self, keys: tuple[HandleKey, ...]) -> HandleKeys:
        return self._rotation.distributed_keys(keys, unsigned_before=self._unsigned_handles)

    def orphaned_topics(self) -> list[OrphanedTopic]:
        """The topics that enodes hold and the directory lacks, sorted by name."""
        return self.orphaned.list_orphaned(self._routes.topics, self._routes.deleted)

    async def adopt_topics(self, names: Sequence[str], *, all_possible: bool) -> adoption.Adoption:
        """Adopt the topics `names`, which enodes hold and the directory lacks.

        With `all_possible`, all topics without a conflict are adopted, and the result also has the others. Errors: as
        `orphaned_topics.select_named`; Overloaded.
        """
        now_ms, said = self._clock.now_ms(), self.orphaned.snapshot()
        return await self._change(partial(adoption.adopt_topics, said, names, all_possible, now_ms))

    async def put_group(self, request: Group, *, create_only: bool, selection: FieldSelection = ALL_FIELDS) -> Group:
        """Create or change a group. Errors: as `groups.merge_request`, `groups.with_defaults` and `groups.put`."""
        groups.with_defaults(groups.merge_request(request, None, selection))
        now_ms = self._clock.now_ms()

        def decide(stored: CatalogTransaction) -> tuple[Group, RouteChange | None]:
            existing = stored.group(request.name)
            count = stored.group_count()
            wanted = groups.with_defaults(groups.merge_request(request, existing, selection))
            group = groups.put(
                wanted, existing, create_only=create_only, group_count=count, version=stored.version, now_ms=now_ms
            )
            if group is existing:
                return group, None
            stored.put_group(group, existing)
            return group, RouteChange(stored.version, groups=(group,))

        return await self._change(decide)

    async def delete_group(self, name: str, *, skip_grace_period: bool = False) -> GroupDeletion:
        """Delete a group; it can be restored unless `skip_grace_period`. Errors: Invalid, NotFound."""
        grace_ms = 0 if skip_grace_period else self.group_deletion_grace_ms
        return await self._change(partial(deletion.delete_group, name, self._clock.now_ms(), grace_ms))

    async def undelete_group(self, name: str) -> Group:
        """Restore a deleted group. Errors: as `deletions.undelete_group`."""
        group = await self._change(partial(deletion.undelete_group, name))
        self._routes.deleted_groups.pop(name, None)
        return group

    def deleted_groups(self) -> Iterator[GroupDeletion]:
        """The deleted groups of this moment that can be restored, in no order."""
        return deletions.restorable(self._routes.deleted_groups.values())

    def check_double(self, enode: Enode, *, may_succeed: bool) -> None:
        """Refuse an enode if its name is alive with another store. Errors: as `ProcessLeases.check_double`."""
        self._leases.check_double(enode, self._clock.monotonic_s(), may_succeed=may_succeed)

    def register_enode(
        self,
        enode: Enode,
        directory_id: str,
        unknown: Sequence[StoredTopic],
        unlisted_count: int,
        directory_version: int = 0,
    ) -> None:
        """Grant or renew an enode's lease, and record the topics that it holds and this directory lacks.

        `unknown` are these topics, if the enode compared its topics with this directory (`directory_id`).
        `unlisted_count` is the number of further such topics. The enode has applied all changes of the directory up to
        `directory_version`. Errors: as `ProcessLeases.register_enode` and `OrphanedTopics.update`.
        """
        other_id = "" if directory_id == self.directory_id else directory_id
        self._publish(enode=self._leases.register_enode(enode, self._clock.monotonic_s(), other_id))
        if not other_id and directory_id:  # otherwise the topics are unknown to another directory
            self.orphaned.update(enode.name, unknown, unlisted_count)
            self._deletions.confirm(enode.name, directory_version)

    async def forget_enode(self, name: str, *, lose: bool, replicas: str) -> ForgottenEnode:
        """Remove an enode from all topics. Errors: as `forgetting.forget_enode`."""
        enodes = self._leases.enode_liveness()
        return await self._change(partial(forgetting.forget_enode, name, lose, replicas, enodes))

    def drop_enode(self, name: str) -> None:
        """Drop the lease and the offered topics of a forgotten enode."""
        self._leases.forget_enode(name)
        self.orphaned.update(name, (), 0)
        self._deletions.drop_enode(name)

    def register_snode(self, snode: Snode, incarnation: str, *, shares_membership: bool) -> None:
        """Grant or renew a snode's lease. Errors: as `ProcessLeases.register_snode`."""
        now_s = self._clock.monotonic_s()
        news = self._leases.register_snode(snode, incarnation, shares_membership=shares_membership, now_s=now_s)
        self._publish(snode=news)

    def update_replicas(self, replica_set: ReplicaSet) -> None:
        """Publish an enode's replicas and its leader's address. Errors: Overloaded."""
        self._publish(enode=self._leases.update_replicas(replica_set, self._clock.monotonic_s()))

    def unregister_enode(self, name: str, epoch: int) -> None:
        """End an enode's lease; no effect if the lease belongs to a later epoch, or if there is no lease."""
        self._publish(enode=self._leases.end_enode_lease(name, epoch))

    def unregister_snode(self, name: str) -> None:
        """End a snode's lease; no effect if there is no lease."""
        self._publish(snode=self._leases.end_snode_lease(name))

    async def follow_database(self, interval_s: float) -> None:
        """Apply the stored changes of other name servers, and own changes that were stored although the call failed.

        It never returns. If it fails, the process must end, because it would serve wrong data.
        """
        failing = False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s if self._catalog.shared else None):
                    await self._is_behind.wait()
            self._is_behind.clear()
            try:
                heard, version = self._synced.version, await self._catalog.read_version()
                if was_restored := version < heard:
                    _log.emit(log_events.DATABASE_LOST_CHANGES, version=version, heard=heard)
                    version = await self._catalog.run_transaction(
                        lambda stored: (stored.version, True), above_version=heard
                    )
                if version > self._synced.version and (
                    was_restored
                    or not self._synced.apply_changes(await self._catalog.load_since(heard, self._routes.deleted))
                ):
                    self._synced.apply_all(await self._catalog.load_all())
                if failing:
                    _log.emit(log_events.DATABASE_AVAILABLE)
                failing = False
            except OrtooError as error:
                if not failing:
                    _log.emit(log_events.DATABASE_READ_FAILED, reason=str(error))
                failing = True
                self._is_behind.set()
                await self._clock.sleep(interval_s)

    async def expire(self) -> None:
        """End the expired leases, and notify the watchers."""
        enodes, snodes = self._leases.expire(self._clock.monotonic_s())
        for enode in enodes:
            self._publish(enode=enode)
        for snode in snodes:
            self._publish(snode=snode)

    def _put_topic(
        self, stored: CatalogTransaction, existing: Topic | None, topic: Topic
    ) -> tuple[Topic, RouteChange | None]:
        if topic is existing:
            return topic, None
        stored.put_topic(topic, existing)
        return topic, RouteChange(stored.version, topics=(topic,))

    def _publish(self, *, enode: Enode | None = None, snode: Snode | None = None) -> None:
        if enode is not None:
            known = self._routes.enodes.get(enode.name)
            if known is None or (known.address, known.alive) != (enode.address, enode.alive):
                _log_process("enode", enode)
            self.watches.publish(RouteChange(self.version, enodes=(enode,)))
            for forgotten in self._routes.enodes.keys() - self._leases.enodes().keys():
                del self._routes.enodes[forgotten]  # replaced by another enode; watchers know that it is dead
                self._deletions.drop_enode(forgotten)
        if snode is not None:
            _log_process("snode", snode)
            self.watches.publish(RouteChange(self.version, snodes=(snode,)))

    async def _change(self, decide: Callable[[CatalogTransaction], tuple[T, RouteChange | None]]) -> T:
        """Store a change, then serve and publish it, also if the caller disconnects in between."""
        heard = self._synced.version

        def bounded(stored: CatalogTransaction) -> tuple[tuple[T, RouteChange | None], bool]:
            if stored.version <= heard:
                raise Unavailable(
                    "the database was restored to an older state, which this name server has not read yet; retry",
                    retry_after_ms=500,
                )
            answer, change = decide(stored)
            if change is not None and self._routes.growth_bytes(change) > max(0, self._routes.free_bytes):
                raise Overloaded(
                    f"the directory is full: all its contents must fit into {DIRECTORY_BYTES_MAX} bytes. "
                    "Delete unused topics or groups"
                )
            return (answer, change), change is not None

        def take_over(done: "asyncio.Future[tuple[T, RouteChange | None]]") -> None:
            if done.cancelled():
                return
            if isinstance(done.exception(), Unavailable | DataLoss):
                self._is_behind.set()  # it may be stored nevertheless
            elif done.exception() is None and (change := done.result()[1]) is not None:
                if change.version == self._synced.version + 1:
                    self._synced.version = change.version
                    self.watches.publish(change)
                else:  # another name server stored a change in between: apply both together
                    self._is_behind.set()

        storing = self._catalog.run_transaction(bounded)
        storing.add_done_callback(take_over)
        storing.add_done_callback(self._count)
        return (await asyncio.shield(storing))[0]

    def _count(self, done: "asyncio.Future[Any]") -> None:
        error = None if done.cancelled() else done.exception()
        outcome = "stored" if error is None else "failed" if isinstance(error, Unavailable | DataLoss) else "refused"
        self.outcomes[outcome] += 1


def _log_process(kind: str, process: Enode | Snode) -> None:
    event = log_events.PROCESS_REGISTERED if process.alive else log_events.PROCESS_EXPIRED
    _log.emit(event, kind=kind, name=process.name, address=process.address)
