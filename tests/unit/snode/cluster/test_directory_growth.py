"""The cost of one change for a snode does not depend on the number of topics and groups."""

import pytest

from ortoo.common.directory.group import Group
from ortoo.common.directory.topic import Permission, Placement
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.routes import DirectoryUpdate, EnodeEntry, Topic
from ortoo.snode.enodes.link import EnodeLinks
from tests.work_done import WorkDone, count_work

FEW, MANY = 1_000, 4_000


def topic(number: int, version: int = 1) -> Topic:
    """A topic with queues on two enodes."""
    placed = (Placement("e1", 1, 1), Placement("e2", 1, 1))
    return Topic(f"t{number}", number, version, Permission.READ_WRITE, placed)


CHANGES = {
    "a changed topic": DirectoryUpdate(2, topics=(topic(7, 2),)),
    "a new topic": DirectoryUpdate(2, topics=(topic(MANY + 1, 2),)),
    "a deleted topic": DirectoryUpdate(2, deleted_topics=("t7",)),
    "a changed group": DirectoryUpdate(2, groups=(Group("g7", version=2),)),
    "a deleted group": DirectoryUpdate(2, deleted_groups=("g7",)),
    "a resumed watch": DirectoryUpdate(2, resumed=True),
    "an enode without a lease": DirectoryUpdate(2, enodes=(EnodeEntry("e1", "h:1", "s", alive=False),)),
}


def work_of(change: DirectoryUpdate, count: int) -> WorkDone:
    """The work for one change beside `count` topics and groups, and for the enodes that are expected after it."""
    directory = DirectoryCache()
    topics, groups = tuple(map(topic, range(count))), tuple(Group(f"g{number}") for number in range(count))
    directory.apply(DirectoryUpdate(1, True, topics, groups=groups))
    with count_work() as work:
        directory.apply(change)
        directory.expected_enodes()
    return work


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_costs_the_same_beside_more_topics(change: DirectoryUpdate) -> None:
    """Four times the topics and groups, the same work."""
    few, many = work_of(change, FEW), work_of(change, MANY)
    assert many.is_at_most(few), (few, many)


def test_a_change_of_a_topic_keeps_the_queues_for_sends_to_others() -> None:
    """Only a change of enodes changes the queues that accept messages."""
    directory = DirectoryCache()
    entries = (EnodeEntry("e1", "h:1", "s", alive=True), EnodeEntry("e2", "h:2", "s", alive=True))
    directory.apply(DirectoryUpdate(1, True, (topic(1), topic(2)), enodes=entries))
    queues = topic(1).write_queues()
    before = directory.available_queues(queues)
    directory.apply(DirectoryUpdate(2, topics=(topic(2, 2),)))
    assert directory.available_queues(queues) is before
    directory.apply(DirectoryUpdate(3, enodes=(EnodeEntry("e1", "h:1", "s", alive=False),)))
    assert [queue.enode for queue in directory.available_queues(queues)] == ["e2"]


def test_topics_of_another_directory_are_replaced_whatever_their_version() -> None:
    """Versions of two directories cannot be compared; equal topics are not reported as changed."""
    directory = DirectoryCache()
    directory.apply(DirectoryUpdate(9, True, (topic(1, 9), topic(2, 9), topic(3, 9)), directory_id="one"))
    changed = directory.apply(DirectoryUpdate(5, True, (topic(1, 5), topic(3, 9)), directory_id="two"))
    assert changed == {"t1", "t2"}
    assert [(one.name, one.version) for one in directory.topics()] == [("t1", 5), ("t3", 9)]
    assert directory.topics_on("e1") == ["t1", "t3"]


def test_the_topics_of_an_enode_follow_each_change() -> None:
    """Moved and deleted topics leave their enode; an enode without topics and lease is no longer expected."""
    directory = DirectoryCache()
    directory.apply(DirectoryUpdate(1, True, (topic(1), topic(2))))
    moved = Topic("t1", 1, 2, Permission.READ_WRITE, (Placement("e3", 1, 1),))
    assert directory.update_topic(moved)
    assert [directory.topics_on(enode) for enode in ("e1", "e2", "e3")] == [["t2"], ["t2"], ["t1"]]
    directory.apply(DirectoryUpdate(3, deleted_topics=("t2", "t-unknown")))
    assert [one.name for one in directory.expected_enodes()] == ["e3"]


def test_a_change_costs_the_same_beside_more_enodes() -> None:
    """The snode follows the enodes whose registrations have changed, and does not go through all of them."""

    def work_beside(count: int) -> WorkDone:
        directory = DirectoryCache()
        links = EnodeLinks(directory, lambda *_: pytest.fail("no leader has changed"))
        enodes = tuple(EnodeEntry(f"e{number}", "h:1", "s", alive=True) for number in range(count))
        directory.apply(DirectoryUpdate(1, True, (topic(1),), enodes=enodes))
        links.update_leaders(directory.take_changed_enodes())
        with count_work() as work:
            for change in (DirectoryUpdate(2, topics=(topic(1, 2),)), DirectoryUpdate(3, enodes=enodes[1:2])):
                directory.apply(change)
                followed = directory.take_changed_enodes()
                links.update_leaders(followed)
                assert followed == list(change.enodes)
        return work

    few, many = work_beside(FEW), work_beside(MANY)
    assert many.is_at_most(few), (few, many)


def test_lite_topics_that_no_client_uses_cost_nothing() -> None:
    """A new one beside others, and one that is deleted, cost the same. None is kept."""
    placed = (Placement("e1", 1, 1),)

    def work_beside(count: int) -> WorkDone:
        directory = DirectoryCache()
        lite = tuple(
            Topic(f"%LMQ%|p|{number}", number, 1, Permission.READ_WRITE, placed, parent="p") for number in range(count)
        )
        directory.apply(DirectoryUpdate(1, topics=lite))
        with count_work() as work:
            directory.apply(DirectoryUpdate(2, topics=lite[:1], deleted_topics=(lite[1].name,)))
        assert directory.topics() == []
        assert len(directory.lite) == 0
        return work

    few, many = work_beside(FEW), work_beside(MANY)
    assert many.is_at_most(few), (few, many)
