"""The copy of the directory."""

import dataclasses

import pytest

from ortoo.common.directory.group import Group
from ortoo.common.directory.topic import Permission, Placement
from ortoo.common.errors import Invalid, NotFound
from ortoo.snode.cluster.directory import DirectoryCache, check_readable, check_writable
from ortoo.snode.cluster.routes import DirectoryUpdate, EnodeEntry, Queue, Topic


def topic(name: str, version: int = 1, permission: Permission = Permission.READ_WRITE) -> Topic:
    """A topic with four read and two write queues on each of two enodes."""
    return Topic(name, version, version, permission, (Placement("e2", 4, 2), Placement("e1", 4, 2)))


def test_a_snapshot_replaces_and_a_change_adds() -> None:
    """Each change names the changed topics."""
    directory = DirectoryCache()
    assert directory.apply(DirectoryUpdate(5, True, (topic("a"), topic("b")), groups=(Group("g"),))) == {"a", "b"}
    assert directory.apply(DirectoryUpdate(6, False, (topic("c"),), deleted_topics=("a",))) == {"a", "c"}
    assert [t.name for t in directory.topics()] == ["b", "c"]
    assert directory.apply(DirectoryUpdate(7, True, (topic("c"),))) == {"b"}
    assert directory.version == 7
    assert directory.group("g") is None


def test_a_name_server_that_is_behind_takes_nothing_away() -> None:
    """A snapshot older than a topic does not affect it (E-026)."""
    directory = DirectoryCache()
    directory.apply(DirectoryUpdate(9, True, (topic("old", 3), topic("changed", 8), topic("new", 9))))
    assert directory.apply(DirectoryUpdate(7, True, (topic("changed", 2),))) == {"old"}
    assert [(t.name, t.version) for t in directory.topics()] == [("changed", 8), ("new", 9)]


def test_enodes_outlive_a_snapshot_without_them() -> None:
    """A restarted name server has no leases yet; addresses are kept, as not alive."""
    directory = DirectoryCache()
    directory.apply(DirectoryUpdate(1, True, enodes=(EnodeEntry("e1", "h:1", "s", alive=True),)))
    directory.apply(DirectoryUpdate(2, True))
    entry = directory.enode("e1")
    assert entry is not None
    assert (entry.address, entry.alive) == ("h:1", False)


def test_a_resumed_watch_keeps_topics_and_lists_all_live_processes() -> None:
    """Processes that a restarted name server does not list are not alive; topics and groups change as listed."""
    directory = DirectoryCache()
    entries = (EnodeEntry("e1", "h:1", "s", alive=True), EnodeEntry("e2", "h:2", "s", alive=True))
    directory.apply(DirectoryUpdate(5, True, (topic("a"), topic("b")), groups=(Group("g"),), enodes=entries))
    again = DirectoryUpdate(6, topics=(topic("a", 6),), deleted_topics=("b",), enodes=entries[1:], resumed=True)
    assert directory.apply(again) == {"a", "b"}
    assert [one.version for one in directory.topics()] == [6]
    assert directory.group("g") is not None
    assert [(one.name, one.address, one.alive) for one in directory.enodes()] == [
        ("e1", "h:1", False),
        ("e2", "h:2", True),
    ]


def test_an_enode_is_expected_while_topics_have_queues_on_it() -> None:
    """Placements are stored, so that an enode that never registered is away; one without queues needs a lease."""
    directory = DirectoryCache()
    entries = (EnodeEntry("e1", "h:1", "s", alive=True), EnodeEntry("e3", "h:3", "s", alive=False))
    directory.apply(DirectoryUpdate(1, True, (topic("b"), topic("a")), enodes=entries))
    assert [(one.name, one.alive) for one in directory.expected_enodes()] == [("e1", True), ("e2", False)]
    assert [directory.topics_on(enode) for enode in ("e1", "e2", "e3")] == [["a", "b"], ["a", "b"], []]
    assert directory.enode("e2") is None
    directory.apply(DirectoryUpdate(2, deleted_topics=("a", "b")))
    assert [one.name for one in directory.expected_enodes()] == ["e1"]


def test_a_topic_that_was_asked_for_does_not_go_back() -> None:
    """Later data of the watch wins over an older answer."""
    directory = DirectoryCache()
    directory.apply(DirectoryUpdate(5, True, (topic("a", 5),)))
    assert not directory.update_topic(topic("a", 4))
    assert directory.update_topic(topic("a", 6))
    assert directory.topic("a").version == 6


def test_unknown_topic_says_what_to_do() -> None:
    """The error names the topic and how to create it."""
    with pytest.raises(NotFound, match="ortoo topic create nope"):
        DirectoryCache().topic("nope")


def test_queues_are_sorted_by_enode_and_id() -> None:
    """All callers see the same order, for any order of placements."""
    assert [(q.enode, q.queue_id) for q in topic("a").write_queues()] == [("e1", 0), ("e1", 1), ("e2", 0), ("e2", 1)]


@pytest.mark.parametrize(
    ("permission", "queue", "field"),
    [
        (Permission.READ_ONLY, Queue("a", "e1", 0), "queue.topic"),
        (Permission.NONE, Queue("a", "e1", 0), "queue.topic"),
        (Permission.READ_WRITE, Queue("a", "e9", 0), "queue.enode"),
        (Permission.READ_WRITE, Queue("a", "e1", 2), "queue.queue_id"),
    ],
)
def test_a_queue_that_takes_no_messages_is_refused_by_field(permission: Permission, queue: Queue, field: str) -> None:
    """Permission, enode and range have different errors."""
    with pytest.raises(Invalid) as refused:
        check_writable(topic("a", permission=permission), queue)
    assert refused.value.field == field


def test_draining_queues_can_still_be_read() -> None:
    """A queue beyond the write queues but within the read queues is readable."""
    check_readable(topic("a"), Queue("a", "e1", 3))
    with pytest.raises(Invalid):
        check_readable(topic("a"), Queue("a", "e1", 4))
    with pytest.raises(Invalid):
        check_readable(topic("a", permission=Permission.WRITE_ONLY), Queue("a", "e1", 0))


def test_enodes_that_accept_no_messages_are_left_out_while_others_accept_some() -> None:
    """Neither a full enode nor one of another directory gets new messages, unless there is no other."""
    directory = DirectoryCache()
    ready = EnodeEntry("a", "a:1", "s", alive=True)
    full = EnodeEntry("b", "b:1", "s", alive=True, write_refusal="the disk is full")
    elsewhere = EnodeEntry("c", "c:1", "s", alive=True, other_directory_id="other")
    away = EnodeEntry("d", "d:1", "s", alive=False)
    queues = [Queue("t", name, 0) for name in "abcd"]
    directory.apply(DirectoryUpdate(1, True, (), enodes=(ready, full, elsewhere, away)))
    assert directory.available_queues(queues) == [queues[0]]
    assert directory.available_queues(queues[1:]) == queues[1:3]


def test_the_queues_for_producers_are_made_once_for_a_version() -> None:
    """No list of 1,024 queues is built and sorted for each send; another version has its own."""
    one = dataclasses.replace(topic("t"), placements=(Placement("b", 1, 512), Placement("a", 1, 512)))
    assert one.write_queues() is dataclasses.replace(one).write_queues()
    assert list(one.write_queues()) == sorted(one.write_queues())
    fewer = dataclasses.replace(one, version=2, placements=(Placement("a", 1, 1),))
    assert list(fewer.write_queues()) == [Queue("t", "a", 0)]
