"""The largest slice of a scrape, and of an examination, does not depend on the number of topics and groups."""

from collections.abc import Callable, Iterator

import pytest

from ortoo.common.process.clock import SystemClock
from ortoo.common.process.long_work import slices
from ortoo.common.telemetry.metrics import Metrics
from ortoo.common.telemetry.text import chunks
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.observe.backlog import Backlogs
from ortoo.enode.observe.findings import EnodeFindings
from ortoo.enode.observe.metrics import register_backlogs, register_store
from ortoo.enode.store.store import Store
from tests.contract.one_store import OneStore
from tests.work_done import NOISE, count_work

FEW, MANY = 1_000, 4_000
Work = Callable[[Store, Backlogs], Iterator[object]]


def scrape(store: Store, backlogs: Backlogs) -> Iterator[object]:
    """The metrics of topics and groups as text."""
    metrics = Metrics()
    register_store(metrics, store)
    register_backlogs(metrics, backlogs, backlogs.clock)
    return chunks(metrics)


def examine(store: Store, backlogs: Backlogs) -> Iterator[object]:
    """The findings about messages."""
    return slices(EnodeFindings(store, backlogs, backlogs.clock).messages())


def describe_group(store: Store, backlogs: Backlogs) -> Iterator[object]:
    """The backlogs of one group."""
    del store
    return slices(backlogs.of_group("g7"))


async def largest_slice(work: Work, count: int) -> tuple[int, int]:
    """The instructions of the largest slice, and the number of slices, with this number of topics and of groups."""
    one = OneStore()
    await one.open()
    for begin in range(1, count + 1, 100):
        copies = [TopicCopy(number, f"t{number}", 1, number) for number in range(begin, begin + 100)]
        await one.store.put_topics(copies)
    for number in range(1, count + 1):
        await one.store.offsets.commit(number, f"g{number}", {0: 0})
    largest, number_of_slices = 0, 0
    parts = work(one.store, Backlogs(one.store, SystemClock()))
    while True:
        with count_work() as done:
            part = next(parts, None)
        if part is None:
            break
        largest, number_of_slices = max(largest, done.instructions), number_of_slices + 1
    await one.store.close()
    return largest, number_of_slices


@pytest.mark.parametrize("work", [scrape, examine, describe_group])
async def test_the_largest_slice_is_the_same_with_more_topics_and_groups(work: Work) -> None:
    """Calls wait for one slice at most, so four times the topics must not make a slice longer."""
    await largest_slice(work, 100)  # one-time work, such as imports
    few, many = await largest_slice(work, FEW), await largest_slice(work, MANY)
    assert many[0] <= NOISE * few[0], (few, many)
    assert few[1] < many[1] <= 4 * few[1] + 1, (few, many)
