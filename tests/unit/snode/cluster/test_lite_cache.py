"""The copy of lite topics of a snode."""

from typing import Any

import pytest

from ortoo.common.directory.topic import Permission, Placement
from ortoo.common.process.randomness import Randomness
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.lite_cache import LiteTopicCache
from ortoo.snode.cluster.name_server import TopicsAnswer
from ortoo.snode.cluster.routes import DirectoryUpdate, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.verification.time.virtual_time import in_virtual_time, running_clock


def lite(name: str, version: int, parent: str = "p") -> Topic:
    """A lite topic."""
    placed = (Placement("e1", 1, 1),)
    return Topic(f"%LMQ%|{parent}|{name}", version, version, Permission.READ_WRITE, placed, parent=parent)


A, B = lite("a", 1), lite("b", 2)


class NameServer:
    """Has `A` and 2,500 other lite topics, and counts requests."""

    def __init__(self) -> None:
        self.requests: list[int] = []
        self.topics = {one.name: one for one in (A, *(lite(f"x{number}", 1, "q") for number in range(2_500)))}

    async def get_topics(self, names: Any = (), topic_ids: Any = ()) -> TopicsAnswer:
        """Those of the names that exist."""
        self.requests.append(len(names))
        return TopicsAnswer([self.topics[name] for name in names if name in self.topics], 5)


def watch_of(directory: DirectoryCache, name_server: NameServer) -> DirectoryWatch:
    """A watch that asks this name server."""
    server: Any = name_server
    return DirectoryWatch(directory, server, clock=running_clock(), randomness=Randomness(1))


@in_virtual_time
async def test_names_are_asked_once_and_in_batches() -> None:
    """Also those that do not exist; a topic that is created later is seen without a request."""
    directory, name_server = DirectoryCache(), NameServer()
    directory.apply(DirectoryUpdate(5, True, directory_id="d"))
    watch = watch_of(directory, name_server)
    names = [f"%LMQ%|q|x{number}" for number in range(2_500)]
    for _ in range(2):
        await watch.load_lite_topics([A.name, B.name, *names])
    assert name_server.requests == [1_000, 1_000, 502]
    assert (directory.find_topic(A.name), directory.find_topic(B.name)) == (A, None)
    assert await watch.topic(A.name) == A
    created = lite("b", 6)
    assert directory.apply(DirectoryUpdate(6, topics=(created, lite("unused", 6)))) == {created.name}
    assert await watch.topic(B.name) == created
    assert directory.apply(DirectoryUpdate(7, deleted_topics=(A.name,))) == {A.name}
    assert directory.find_topic(A.name) is None
    assert len(name_server.requests) == 3


def test_a_lite_topic_that_no_client_uses_is_not_kept() -> None:
    """Neither one of a snapshot of an earlier name server nor a new one."""
    directory = DirectoryCache()
    assert directory.apply(DirectoryUpdate(1, True, (A,), directory_id="d")) == set()
    assert directory.apply(DirectoryUpdate(2, topics=(B,))) == set()
    assert (directory.find_topic(A.name), directory.find_topic(B.name), len(directory.lite)) == (None, None, 0)


def test_after_another_watch_each_name_is_asked_again() -> None:
    """A change may have been missed. Until the answer, the former topic is used."""
    directory = DirectoryCache()
    directory.apply(DirectoryUpdate(1, True, directory_id="d"))
    assert directory.lite.enter([A.name]) == [A.name]
    directory.lite.learn([A.name], {A.name: A}, 1, 1)
    assert directory.lite.enter([A.name]) == []
    directory.apply(DirectoryUpdate(9, resumed=True, directory_id="d"))
    assert directory.find_topic(A.name) == A
    assert directory.lite.enter([A.name]) == [A.name]
    assert directory.lite.learn([A.name], {}, 9, 9) == {A.name}
    assert directory.find_topic(A.name) is None


def test_topics_of_another_directory_are_forgotten() -> None:
    """Their versions cannot be compared with those of the new directory."""
    directory = DirectoryCache()
    directory.apply(DirectoryUpdate(50, True, directory_id="one"))
    directory.lite.enter([A.name])
    directory.lite.learn([A.name], {A.name: lite("a", 40)}, 50, 50)
    assert directory.apply(DirectoryUpdate(3, True, directory_id="two")) == {A.name}
    assert directory.find_topic(A.name) is None
    assert directory.lite.enter([A.name]) == [A.name]
    directory.lite.learn([A.name], {A.name: A}, 3, 3)
    assert directory.find_topic(A.name) == A


@pytest.mark.parametrize("version", [101, 60], ids=["raised", "lowered"])
@pytest.mark.parametrize("known", [lite("a", 95), None], ids=["changed", "deleted"])
@pytest.mark.parametrize("snapshot", [True, False], ids=["snapshot", "change"])
def test_topics_of_a_restored_directory_are_older(version: int, known: Topic | None, snapshot: bool) -> None:
    """The backup has a state of the topic from before the change, or the deletion, that the snode has seen."""
    directory, restored = DirectoryCache(), lite("a", 40)
    directory.apply(DirectoryUpdate(90, True, directory_id="d"))
    directory.lite.enter([A.name])
    directory.lite.learn([A.name], {A.name: lite("a", 80)}, 90, 90)
    directory.apply(DirectoryUpdate(95, topics=(known,) if known else (), deleted_topics=() if known else (A.name,)))
    assert directory.find_topic(A.name) == known
    if snapshot:
        directory.apply(DirectoryUpdate(version, True, directory_id="d"))
        directory.lite.learn(directory.lite.enter([A.name]), {A.name: restored}, version, version)
    else:
        directory.apply(DirectoryUpdate(101, topics=(restored,)))
    assert directory.find_topic(A.name) == restored
    assert directory.lite.enter([A.name]) == []


@pytest.mark.parametrize(("version", "expected"), [(8, None), (9, A), (10, A)], ids=["older", "same", "newer"])
def test_an_answer_about_ids_that_a_change_has_overtaken_is_not_used(version: int, expected: Topic | None) -> None:
    """The watch has reported version 9, and maybe a change of this topic, while the copy did not have its name."""
    cache = LiteTopicCache()
    cache.remember([A], version, 9)
    assert cache.find(A.name) == expected
    assert cache.enter([A.name]) == [A.name]


def test_the_least_recently_used_names_are_removed() -> None:
    """A parent whose list has lost a name is listed again."""
    cache = LiteTopicCache(size_max=2)
    cache.enter_parent("p")
    cache.learn_page("p", [A, B], 5, 5)
    assert cache.is_complete("p")
    assert cache.find(A.name) == A
    cache.enter(["%LMQ%|q|c"])
    assert (len(cache), cache.find(A.name), cache.find(B.name)) == (2, A, None)
    assert not cache.is_complete("p")
    assert cache.names_of("p") == [A.name]
