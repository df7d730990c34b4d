"""Deleted names are sorted: with the order of a set, one seed of the simulation was another run in each process."""

from ortoo.common.directory.topic import Permission, Placement
from ortoo.namesrv.decisions import deletions
from ortoo.namesrv.decisions.routes.route_changes import Routes, StoredDirectory
from ortoo.namesrv.decisions.topics import Topic

NAMES = [f"t{number:02}" for number in range(30)]
TOPICS = tuple(
    Topic(name, number, 2, Permission.READ_WRITE, (Placement("a", 1, 1),), 1) for number, name in enumerate(NAMES, 1)
)


def test_the_names_that_a_database_no_longer_has_are_sorted() -> None:
    """Another name server deleted them."""
    change = Routes(StoredDirectory(2, TOPICS)).diff(StoredDirectory(3), None)
    assert change is not None
    assert list(change.deleted_topics) == NAMES


def test_the_deleted_names_of_a_resumed_watch_are_sorted() -> None:
    """They are repeated for each watcher that continues."""
    deleted = tuple(deletions.delete(topic, now_ms=1, grace_ms=60_000) for topic in TOPICS)
    assert list(Routes(StoredDirectory(3, deletions=deleted)).changes_since(2).deleted_topics) == NAMES
