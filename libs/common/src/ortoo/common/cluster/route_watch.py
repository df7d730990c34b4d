"""Follows the routes of a name server: joins the parts of a change, and resumes after a disconnection."""

import zlib
from collections.abc import AsyncIterable, AsyncIterator, Iterable

from ortoo.common.cluster.names import lite_checksum
from ortoo.common.errors import Conflict
from ortoo.common.process.clock import Clock, current_clock
from ortoo.common.process.long_work import in_slices
from ortoo.v1.namesrv_pb2 import WatchRoutesRequest, WatchRoutesResponse
from ortoo.v1.topic_pb2 import (
    WATCHED_LITE_TOPICS_NONE,
    WATCHED_LITE_TOPICS_ON_ENODE,
    WATCHED_LITE_TOPICS_UNSPECIFIED,
    Group,
    Placement,
    Topic,
    WatchedLiteTopics,
)

CHECKSUM_MODULUS = 1 << 64
Crcs = dict[tuple[type[Topic | Group], str], int]


def checksum_of(rows: Iterable[bytes]) -> int:
    """The checksum of topics and groups in any order, each encoded as a WatchRoutesResponse with only this row."""
    return sum(map(zlib.crc32, rows)) % CHECKSUM_MODULUS


def _watched_lite_topics(scope: str | None) -> WatchedLiteTopics.ValueType:
    if scope is None:
        return WATCHED_LITE_TOPICS_UNSPECIFIED
    return WATCHED_LITE_TOPICS_ON_ENODE if scope else WATCHED_LITE_TOPICS_NONE


class RoutePosition:
    """The version of the routes that a process has applied, from which another watch can continue.

    A checksum of all topics and groups detects a name server with other contents. Its database may have been restored
    from a backup, or it may no longer list an old deletion.
    """

    def __init__(self, clock: Clock | None = None, *, lite_scope: str | None = None) -> None:
        """Start without routes. `clock` None = the default clock.

        `lite_scope` selects the lite topics in snapshots, in resumed changes and in the checksum: None = all, empty =
        none, otherwise those on this enode.
        """
        self._clock = clock or current_clock()
        self._lite_scope = lite_scope
        self._directory_id = ""
        self._version = 0
        self._highest_version = 0
        """The highest version of this directory that was seen."""
        self._is_behind = False
        """Whether the last snapshot was older than routes seen before."""
        self._crcs: Crcs = {}
        """The checksum of each topic and group in the scope, by kind and name."""

    def request(self, *, include_handle_keys: bool = False) -> WatchRoutesRequest:
        """The request of a watch that continues from here.

        After a snapshot of an older version it asks for another one. A process may have kept rows that are newer than
        the older snapshot, and only a snapshot removes them if their deletion is not known.
        """
        since = 0 if self._is_behind else self._version
        return WatchRoutesRequest(
            include_handle_keys=include_handle_keys,
            directory_id=self._directory_id,
            since=since,
            accepts_placement_sets=True,
            lite_topics=_watched_lite_topics(self._lite_scope),
            enode=self._lite_scope or "",
        )

    async def follow(self, parts: AsyncIterable[WatchRoutesResponse]) -> AsyncIterator[WatchRoutesResponse]:
        """Yield each change of a watch, for the caller to apply.

        The position moves when the caller requests the next change, so that it never passes a change that failed.
        Errors: Conflict if a resumed watch has other contents. The next request then asks for a snapshot.
        """
        async for update in assemble_changes(parts):
            yield update
            self._advance(update, await self._crcs_of(update))

    async def _crcs_of(self, update: WatchRoutesResponse) -> Crcs:
        """The CRCs of the rows of an update. A snapshot is long work, so the event loop does other work in between."""
        crcs: Crcs = {}
        sets_here = {one.set_id for one in update.placement_sets if self._is_placed_here(one.placements)}
        async for topics in in_slices(update.topics, self._clock):
            for topic in topics:
                if self._lite_scope is None or not topic.parent:
                    crcs[Topic, topic.name] = zlib.crc32(WatchRoutesResponse(topics=[topic]).SerializeToString())
                elif topic.placement_set_id in sets_here or self._is_placed_here(topic.placements):
                    crcs[Topic, topic.name] = lite_checksum(topic.topic_id, topic.version)
                else:
                    self._crcs.pop((Topic, topic.name), None)
        async for groups in in_slices(update.groups, self._clock):
            for group in groups:
                crcs[Group, group.name] = zlib.crc32(WatchRoutesResponse(groups=[group]).SerializeToString())
        return crcs

    def _is_placed_here(self, placements: Iterable[Placement]) -> bool:
        """Whether an enode's watch is of lite topics with these placements."""
        return any(one.enode == self._lite_scope for one in placements)

    def _advance(self, update: WatchRoutesResponse, crcs: Crcs) -> None:
        if update.snapshot:
            self._crcs.clear()
        for name in update.deleted_topics:
            self._crcs.pop((Topic, name), None)
        for name in update.deleted_groups:
            self._crcs.pop((Group, name), None)
        self._crcs.update(crcs)
        if update.directory_id != self._directory_id:
            self._highest_version = 0
        if update.snapshot:
            self._is_behind = update.version < self._highest_version
        self._highest_version = max(self._highest_version, update.version)
        self._directory_id, self._version = update.directory_id, update.version
        if update.resumed and sum(self._crcs.values()) % CHECKSUM_MODULUS != update.contents_checksum:
            self._crcs.clear()
            self._version = 0
            raise Conflict("the routes here differ from those of the name server; the next watch gets a snapshot")


async def assemble_changes(parts: AsyncIterable[WatchRoutesResponse]) -> AsyncIterator[WatchRoutesResponse]:
    """Join the parts of each change that a watch reports into one message.

    A change whose last part is missing is dropped.
    """
    begun: WatchRoutesResponse | None = None
    async for part in parts:
        if begun is not None:
            begun.MergeFrom(part)
        if part.more:
            begun = begun or part
        else:
            yield begun or part
            begun = None
