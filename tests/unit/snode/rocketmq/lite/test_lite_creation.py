"""The creation of lite topics by their first message."""

from types import SimpleNamespace
from typing import Any

from ortoo.common.directory.topic import MessageType, Permission, Placement
from ortoo.common.process.randomness import Randomness
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.lite_cache import LiteTopicCache
from ortoo.snode.cluster.name_server import TopicsAnswer
from ortoo.snode.cluster.routes import DirectoryUpdate, EnodeEntry, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.rocketmq.lite.topics import LiteTopics
from ortoo.verification.time.virtual_time import in_virtual_time, running_clock

PLACED = (Placement("e1", 1, 1),)
PARENT = Topic("p", 1, 1, Permission.READ_WRITE, PLACED, message_type=MessageType.LITE)
CREATED = Topic("%LMQ%|p|a", 2, 2, Permission.READ_WRITE, PLACED, parent="p")


class NameServer:
    """Has a lite topic after its creation."""

    def __init__(self) -> None:
        self.creations = 0

    async def get_topics(self, names: Any = (), topic_ids: Any = ()) -> TopicsAnswer:
        """The topic, if it was created."""
        return TopicsAnswer([CREATED] if self.creations and CREATED.name in names else [], 1 + self.creations)

    async def create_topic(self, name: str, **properties: Any) -> Topic:
        """Create the topic."""
        self.creations += 1
        assert self.creations == 1
        return CREATED


@in_virtual_time
async def test_a_name_that_was_displaced_during_the_creation_is_loaded_again() -> None:
    """Other lite topics may need its place in the copy meanwhile. Then the watch reports the creation in vain."""
    directory, server = DirectoryCache(), NameServer()
    directory.lite = LiteTopicCache(size_max=1)
    enode = EnodeEntry("e1", "h:1", "s", alive=True)
    directory.apply(DirectoryUpdate(1, True, (PARENT,), enodes=(enode,), directory_id="d"))
    name_server: Any = server
    watch = DirectoryWatch(directory, name_server, clock=running_clock(), randomness=Randomness(1))

    async def wait_for(topic: Topic) -> None:
        directory.lite.enter(["%LMQ%|p|other"])
        directory.apply(DirectoryUpdate(2, topics=(topic,)))

    cluster: Any = SimpleNamespace(directory=directory, name_server=server, watch=watch)
    propagation: Any = SimpleNamespace(wait_for=wait_for)
    queue = await LiteTopics(cluster, propagation).ensure(PARENT, "a")
    assert queue.topic == CREATED.name
