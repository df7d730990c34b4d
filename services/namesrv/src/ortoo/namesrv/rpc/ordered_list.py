"""A list in an order of its own, which is read in pages."""

from collections.abc import Callable, Hashable, Iterable, Mapping, MutableSequence
from typing import Generic, Protocol, TypeVar

from ortoo.common.cluster.sorted_names import SortedNames
from ortoo.common.grpc.limits.list_pages import Row, fill_page
from ortoo.common.process.clock import Clock
from ortoo.common.process.long_work import in_slices
from ortoo.namesrv.decisions.deletions import GroupDeletion, TopicDeletion
from ortoo.namesrv.decisions.orphaned_topics import OrphanedTopic

Item = TypeVar("Item")
LATEST_MS = (1 << 63) - 1


class PageRequest(Protocol):
    """A request for a page."""

    after: str
    limit: int


class OrderedList(Generic[Item, Row]):
    """The items of a list by key. They are sorted again only if the list has changed since the last page."""

    def __init__(
        self,
        read_items: Callable[[], Iterable[Item]],
        key_of: Callable[[Item], str],
        write_row: Callable[[Item], Row],
        read_version: Callable[[], Hashable],
    ) -> None:
        """The items have the order of their keys, which differ. `read_version` changes whenever the items do.

        The result of `read_items` is read in slices, so it must not iterate over a changing collection.
        """
        self._read_items = read_items
        self._key_of = key_of
        self._write_row = write_row
        self._read_version = read_version
        self._version: Hashable = None
        self._items: Mapping[str, Item] = {}
        self._keys = SortedNames(self._items)

    async def fill(self, rows: MutableSequence[Row], request: PageRequest, clock: Clock) -> str:
        """Add the items of a page to a response; returns the `after` of the next page. Errors: as `fill_page`."""
        version = self._read_version()
        if version != self._version:
            items: dict[str, Item] = {}
            async for part in in_slices(self._read_items(), clock):
                items.update((self._key_of(item), item) for item in part)
            self._items, self._keys, self._version = items, SortedNames(items), version
        known, keys = self._items, self._keys
        await sort_names(keys, clock)
        page = keys.page(request.after, request.limit)
        return await fill_page(page, lambda key: self._write_row(known[key]), rows, request.limit, clock)


async def sort_names(names: SortedNames, clock: Clock) -> None:
    """Sort names for a page. The event loop does other work after each step."""
    for _ in names.sort():
        await clock.sleep(0)


def key_of_deleted_topic(deletion: TopicDeletion) -> str:
    """The last deleted topic is first."""
    return f"{LATEST_MS - deletion.deleted_at_ms:016x}-{deletion.topic_id:016x}"


def key_of_deleted_group(deletion: GroupDeletion) -> str:
    """The last deleted group is first."""
    return f"{LATEST_MS - deletion.deleted_at_ms:016x}-{deletion.name}"


def key_of_orphaned_topic(topic: OrphanedTopic) -> str:
    """By name. Enodes may hold several topics of one name."""
    return f"{topic.name} {topic.topic_id:016x}"
