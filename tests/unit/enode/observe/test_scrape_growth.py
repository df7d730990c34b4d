"""The largest slice of a scrape, and of an examination, does not depend on the number of topics and groups."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from ortoo.common.process.long_work import SLICE_ITEMS, slices
from ortoo.common.telemetry.metrics import Metrics
from ortoo.common.telemetry.text import chunks
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.observe.backlog import Backlogs, GroupBacklog
from ortoo.enode.observe.findings import EnodeFindings
from ortoo.enode.observe.metrics import register_backlogs, register_store
from ortoo.enode.store.store import Store
from tests.contract.one_store import SETTINGS, OneStore, batch
from tests.work_done import NOISE, count_work

FEW, MANY = 1_000, 4_000
LARGE = replace(SETTINGS, segment_bytes=1 << 23, retention_bytes=1 << 40)
Work = Callable[[Store, Backlogs], Iterator[object]]


def scrape(store: Store, backlogs: Backlogs) -> Iterator[object]:
    """The metrics of topics and groups as text."""
    metrics = Metrics()
    register_store(metrics, store)
    register_backlogs(metrics, backlogs, backlogs.clock)
    return chunks(metrics)


def examine(store: Store, backlogs: Backlogs) -> Iterator[object]:
    """The findings about messages. The backlogs are known, so that their computation hides no other work."""
    for _ in backlogs.refresh():
        pass
    return slices(EnodeFindings(store, backlogs, backlogs.clock).messages())


def describe_group(store: Store, backlogs: Backlogs) -> Iterator[object]:
    """The backlogs of one group."""
    del store
    return slices(backlogs.of_group("g7"))


WORKS: tuple[Work, ...] = (scrape, examine, describe_group)


async def stored(count: int) -> OneStore:
    """A store with this number of topics and of groups. Each group has an unfinished message in a topic of its own."""
    one = OneStore(settings=LARGE)
    await one.open()
    for begin in range(1, count + 1, 100):
        numbers = range(begin, begin + 100)
        await one.store.put_topics([TopicCopy(number, f"t{number}", 1, number) for number in numbers])
        await asyncio.gather(*(one.store.append(number, 0, batch(b"x")) for number in numbers))
    for number in range(1, count + 1):
        await one.store.offsets.commit(number, f"g{number}", {0: 0})
    return one


def largest_slice(work: Work, one: OneStore) -> tuple[int, int]:
    """The instructions of the largest slice, and the number of slices."""
    largest, number_of_slices = 0, 0
    parts = work(one.store, Backlogs(one.store, one.clock))
    while True:
        with count_work() as done:
            part = next(parts, None)
        if part is None:
            break
        largest, number_of_slices = max(largest, done.instructions), number_of_slices + 1
    return largest, number_of_slices


async def largest_slices(count: int) -> list[tuple[int, int]]:
    """`largest_slice` of each work with this number of topics and of groups. They only read, and share one store."""
    one = await stored(count)
    found = [largest_slice(work, one) for work in WORKS]
    await one.store.close()
    return found


async def test_the_largest_slice_is_the_same_with_more_topics_and_groups() -> None:
    """Calls wait for one slice at most, so four times the topics must not make a slice longer."""
    await largest_slices(100)  # one-time work, such as imports
    for work, few, many in zip(WORKS, await largest_slices(FEW), await largest_slices(MANY), strict=True):
        assert many[0] <= NOISE * few[0], (work, few, many)
        assert few[1] < many[1] <= 4 * few[1] + 1, (work, few, many)


async def test_the_rows_of_an_earlier_computation_are_freed_in_slices() -> None:
    """To free all of them at once would take longer than a slice."""
    one = await stored(FEW)
    backlogs = Backlogs(one.store, one.clock)

    def rows() -> int:
        return sum(type(found) is GroupBacklog for found in gc.get_objects())

    gc.collect()
    of_others, counts = rows(), list[int]()
    for _ in range(2):
        one.clock.advance(60)
        counts += [rows() - of_others for _ in slices(backlogs.refresh())]
    await one.store.close()
    assert max(counts) == 2 * FEW
    assert counts[-1] == FEW
    assert max(before - after for before, after in pairwise(counts)) <= SLICE_ITEMS, counts
