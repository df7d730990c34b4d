"""Any watcher, however slow, ends with the same routes as the name server."""

from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.directory.group import Group
from ortoo.common.directory.topic import Permission, Placement
from ortoo.namesrv.decisions.process_leases import Enode, Snode
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.routes.route_changes import Routes, StoredDirectory
from ortoo.namesrv.decisions.topics import Topic

NAMES = st.sampled_from(["a", "b", "c"])
Change = tuple[str, str, int]
CHANGES = st.lists(
    st.tuples(st.sampled_from(["topic", "no topic", "group", "no group", "enode", "snode"]), NAMES, st.integers(1, 9)),
    max_size=40,
)
KEPT = 4


def change_of(change: Change, version: int) -> RouteChange:
    """A change as the directory creates it; odd numbers are alive."""
    kind, name, number = change
    placements = (Placement("e", number, number),)
    match kind:
        case "topic":
            topic = Topic(name, number, version, Permission.READ_WRITE, placements, 0)
            return RouteChange(version, topics=(topic,))
        case "no topic":
            return RouteChange(version, deleted_topics=(name,))
        case "group":
            return RouteChange(version, groups=(Group(name, version, True, number, number, 0),))
        case "no group":
            return RouteChange(version, deleted_groups=(name,))
        case "enode":
            return RouteChange(version, enodes=(Enode(name, "h:1", "s", alive=number % 2 == 1),))
        case _:
            return RouteChange(version, snodes=(Snode(name, "h:1", alive=number % 2 == 1),))


def caught_up(mirror: Routes, routes: Routes, seen: int | None) -> tuple[Routes, int]:
    """Read until no change is left; the mirror is the state of a watcher."""
    while True:
        change, seen = routes.next_after(seen)
        if change is None:
            return mirror, seen
        if change.snapshot:
            mirror = Routes(StoredDirectory(0))
        mirror.apply(change)


@given(CHANGES, st.lists(st.integers(0, 40), max_size=10))
def test_snapshot_and_deltas_give_the_state(changes: list[Change], reads: list[int]) -> None:
    """Whenever a watcher reads, also after more changes than are kept, it has exactly the current routes."""
    routes, mirror = Routes(StoredDirectory(0), changes_max=KEPT), Routes(StoredDirectory(0))
    seen: int | None = None
    for number, change in enumerate(changes):
        routes.apply(change_of(change, number + 1))
        if number in reads:
            mirror, seen = caught_up(mirror, routes, seen)
            assert mirror.snapshot() == routes.snapshot()
    mirror, seen = caught_up(mirror, routes, seen)
    assert mirror.snapshot() == routes.snapshot()


@given(CHANGES)
def test_size_is_the_sum_of_what_is_there(changes: list[Change]) -> None:
    """The computed size that limits the directory stays exact."""
    routes = Routes(StoredDirectory(0))
    for number, change in enumerate(changes):
        routes.apply(change_of(change, number + 1))
    again = Routes(StoredDirectory(0, tuple(routes.topics.values()), tuple(routes.groups.values())))
    assert routes.free_bytes == again.free_bytes


@given(CHANGES, st.integers(0, 40))
def test_deltas_come_once_and_in_order(changes: list[Change], from_number: int) -> None:
    """A watcher that keeps up gets each change once, in the order in which they happened."""
    routes = Routes(StoredDirectory(0))
    seen: int | None = None
    got = []
    for number, change in enumerate(changes):
        made = change_of(change, number + 1)
        _, seen = routes.next_after(seen) if number == from_number else (None, seen)
        routes.apply(made)
        if seen is not None:
            told, seen = routes.next_after(seen)
            got.append(told)
    expected = [change_of(c, n + 1) for n, c in enumerate(changes) if n >= from_number]
    assert got == expected
