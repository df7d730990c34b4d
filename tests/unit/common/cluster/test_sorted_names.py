"""Names in order: pages are complete at any size, follow all changes, and cost the same beside more names."""

from collections.abc import Iterator
from itertools import pairwise, zip_longest

import pytest

from ortoo.common.cluster.sorted_names import CHANGED_MAX, MOVES_MAX, SortedNames
from ortoo.common.process.randomness import Randomness
from tests.work_done import NOISE, count_work


def read_all(names: SortedNames, limit: int) -> list[str]:
    """The names of all pages."""
    after, found = "", list[str]()
    while True:
        page, after = names.page(after, limit)
        assert len(page) <= limit
        found += page
        if not after:
            return found


@pytest.mark.parametrize("seed", range(20))
def test_pages_follow_all_changes(seed: int) -> None:
    """After any changes, reported alone, together, twice or without effect, the pages have the sorted names."""
    random, known = Randomness(seed), dict[str, int]()
    names = SortedNames(known)
    for _ in range(60):
        changed = [f"n{random.below(300)}" for _ in range((1, 3, MOVES_MAX + 50, CHANGED_MAX + 1)[random.below(4)])]
        for name in changed:
            action = random.below(3)
            if action == 0:
                known[name] = 0
            elif action == 1:
                known.pop(name, None)
        names.update(changed)
        assert read_all(names, 1 + random.below(39)) == sorted(known)


def test_a_run_of_removed_names_is_removed_at_once() -> None:
    """Lite topics that expire are the next ones of a list. 250 of them do not make the next page sort all names."""
    known = {f"n{number:06}" for number in range(5_000)}
    names = SortedNames(known)
    names.page()
    gone = sorted(known)[1_000:1_250]
    known.difference_update(gone)
    with count_work() as done:
        names.update(gone)
        assert names.page("n000998", 2) == (["n000999", "n001250"], "n001250")
    assert read_all(names, 1_000) == sorted(known)
    assert done.peak_bytes < 8 * len(known), "all names were sorted again"


def test_an_unlimited_page_has_all_names_and_no_next_page() -> None:
    """A limit of 0 is for callers that cannot read pages."""
    names = SortedNames({"b", "a", "c"})
    assert names.page() == (["a", "b", "c"], "")
    assert names.page("a") == (["b", "c"], "")
    assert names.page("a", 1) == (["b"], "b")
    assert names.page("zz", 1) == ([], "")
    assert SortedNames(()).page("", 5) == ([], "")


def test_a_page_and_a_change_cost_the_same_beside_more_names() -> None:
    """Sixteen times the names: the same instructions. Only the list of references grows."""

    def work(count: int) -> int:
        known = {f"n{number:06}" for number in range(count)}
        names = SortedNames(known)
        names.page()
        known.add("n0000005")
        with count_work() as done:
            names.update(["n0000005"])
            names.page("n000005", 100)
        return done.instructions

    for few, many in pairwise([work(1_000), work(4_000), work(16_000)]):
        assert many <= NOISE * few, (few, many)


class Compared(str):
    """A name that counts its comparisons."""

    __slots__ = ()
    comparisons = 0

    def __lt__(self, other: str) -> bool:
        Compared.comparisons += 1
        return str.__lt__(self, other)


def test_names_are_sorted_in_steps() -> None:
    """The longest step merges two sorted halves, which is a small part of sorting all names at once."""
    known = {Compared(f"n{number * 7_919 % 10_000:05}") for number in range(10_000)}
    names, longest = SortedNames(known), 0
    Compared.comparisons = 0
    for _ in names.sort():
        longest, Compared.comparisons = max(longest, Compared.comparisons), 0
    assert names.page("", 2) == (["n00000", "n00001"], "n00001")
    assert max(longest, Compared.comparisons) <= 3 * len(known)
    SortedNames(known).page("", 2)
    assert Compared.comparisons > 8 * len(known)


def changed(known: dict[str, int], count: int, random: Randomness) -> list[str]:
    """Add and remove random names; returns all of them."""
    names = [f"n{random.below(3_000)}" for _ in range(count)]
    for name in names:
        if random.below(2):
            known[name] = 0
        else:
            known.pop(name, None)
    return names


@pytest.mark.parametrize("seed", range(20))
def test_changes_while_names_are_sorted_are_followed(seed: int) -> None:
    """Also if several callers sort at once, and pages are read meanwhile."""
    random, known = Randomness(seed), {f"n{number}": 0 for number in range(2_000)}
    names = SortedNames(known)
    for _ in zip_longest(names.sort(), names.sort()):
        names.update(changed(known, random.below(4), random))
        if not random.below(30):
            names.page("n5", 3)
    assert names.page() == (sorted(known), "")
    names.update([f"n{number}" for number in range(2 * CHANGED_MAX)])
    next(names.sort())  # a caller that is cancelled
    assert not names._missed
    assert names.page() == (sorted(known), "")


@pytest.mark.parametrize("seed", range(20))
def test_callers_that_sort_at_any_times_follow_all_changes(seed: int) -> None:
    """A page sorts the names before a caller has, small changes follow, and a large one makes them unsorted again."""
    random, known = Randomness(seed), {f"n{number}": 0 for number in range(1_500)}
    names, sorting = SortedNames(known), list[Iterator[None]]()
    for _ in range(400):
        action = random.below(20)
        if action < 2 and len(sorting) < 4:
            sorting.append(names.sort())
        elif action == 2 and sorting:
            sorting.pop(random.below(len(sorting)))  # its caller is cancelled
        elif action == 3:
            assert names.page("n5", 3)[0] == [name for name in sorted(known) if name > "n5"][:3]
        elif action < 15 and sorting:
            at = random.below(len(sorting))
            if next(sorting[at], known) is known:
                sorting.pop(at)
                assert names.page() == (sorted(known), "")
        else:
            count = (3, 3, 3, 3, CHANGED_MAX + 1)[random.below(5)]
            names.update(changed(known, count, random))
    sorting.clear()
    assert not names._missed
    assert names.page() == (sorted(known), "")
