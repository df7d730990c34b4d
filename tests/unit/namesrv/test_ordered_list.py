"""Lists that are read in pages: the cost of a page, and changes between two pages."""

from dataclasses import dataclass, field
from itertools import pairwise

from ortoo.common.process.clock import SystemClock
from ortoo.common.process.long_work import SLICE_ITEMS
from ortoo.namesrv.rpc.ordered_list import OrderedList
from ortoo.v1.namesrv_pb2 import ListTopicsRequest
from ortoo.v1.orphaned_topics_pb2 import OrphanedTopic
from tests.work_done import count_work

LINEAR = 4.5
CLOCK = SystemClock()


@dataclass
class Numbers:
    """A list of numbers with a version."""

    numbers: list[int]
    version: int = 1
    read: int = 0
    """The number of times that the whole list was read."""
    listed: OrderedList[int, OrphanedTopic] = field(init=False)

    def __post_init__(self) -> None:
        self.listed = OrderedList(self._all, lambda one: f"{one:06}", self._row, lambda: self.version)

    def _all(self) -> list[int]:
        self.read += 1
        return self.numbers

    def _row(self, number: int) -> OrphanedTopic:
        return OrphanedTopic(topic_id=number)

    async def page(self, after: str = "", limit: int = 10) -> tuple[list[int], str]:
        """A page and the position of the next one."""
        rows: list[OrphanedTopic] = []
        next_after = await self.listed.fill(rows, ListTopicsRequest(after=after, limit=limit), CLOCK)
        return [row.topic_id for row in rows], next_after


async def read_all(numbers: Numbers) -> int:
    """Read all pages; returns their number."""
    pages, after = 1, (await numbers.page())[1]
    while after:
        pages, after = pages + 1, (await numbers.page(after))[1]
    return pages


async def test_a_list_is_read_once_for_all_its_pages() -> None:
    """Four times the rows cost four times the work, in pages of one size."""
    works = []
    for count in (200, 800):
        numbers = Numbers(list(range(1, count + 1)))
        with count_work() as work:
            assert await read_all(numbers) == count // 10
        assert numbers.read == 1
        works.append(work.instructions)
    assert works[1] <= LINEAR * works[0]


async def test_rows_that_come_and_go_between_pages_move_no_others() -> None:
    """The next page begins behind the last row of the previous one, also if that row is gone."""
    numbers = Numbers([5, 1, 9, 3, 7])
    assert await numbers.page(limit=2) == ([1, 3], "000003")
    numbers.numbers, numbers.version = [9, 7, 5, 4, 2], 2
    assert await numbers.page("000003", limit=2) == ([4, 5], "000005")
    assert await numbers.page("000005", limit=2) == ([7, 9], "")
    assert await numbers.page("999999") == ([], "")


@dataclass
class CountingClock(SystemClock):
    """A clock that records how many keys had been computed at each step of the event loop."""

    keys: list[int] = field(default_factory=list)
    at_steps: list[int] = field(default_factory=lambda: [0])

    async def sleep(self, seconds: float) -> None:
        """Record a step, and let the event loop do other work."""
        self.at_steps.append(len(self.keys))
        await super().sleep(seconds)


async def test_a_long_list_is_prepared_in_steps() -> None:
    """The event loop does other work after each slice of the items, and after each step of the sort."""
    clock, count = CountingClock(), 10 * SLICE_ITEMS

    def key_of(number: int) -> str:
        clock.keys.append(number)
        return f"{number:06}"

    listed = OrderedList(lambda: range(count, 0, -1), key_of, lambda one: OrphanedTopic(topic_id=one), lambda: 1)
    rows: list[OrphanedTopic] = []
    assert await listed.fill(rows, ListTopicsRequest(limit=3), clock) == "000003"
    assert [row.topic_id for row in rows] == [1, 2, 3]
    assert len(clock.keys) == count
    assert max(later - earlier for earlier, later in pairwise(clock.at_steps)) <= SLICE_ITEMS
