"""A process continues its watch of the routes after a disconnection."""

from collections.abc import AsyncIterator

import pytest

from ortoo.common.cluster.route_watch import RoutePosition, checksum_of
from ortoo.common.errors import Conflict
from ortoo.v1.namesrv_pb2 import WatchRoutesResponse
from ortoo.v1.topic_pb2 import Group, Topic

DIRECTORY = "d"
A, B, CHANGED_B = Topic(name="a", version=1), Topic(name="b", version=2), Topic(name="b", version=6)
GROUP = Group(name="a", version=3)
SNAPSHOT = WatchRoutesResponse(directory_id=DIRECTORY, version=5, snapshot=True, topics=[A, B], groups=[GROUP])


def checksum(*rows: Topic | Group) -> int:
    """The checksum that a name server with these rows sends."""
    topics = [WatchRoutesResponse(topics=[one]) for one in rows if isinstance(one, Topic)]
    groups = [WatchRoutesResponse(groups=[one]) for one in rows if isinstance(one, Group)]
    return checksum_of(one.SerializeToString() for one in topics + groups)


async def stream(*messages: WatchRoutesResponse) -> AsyncIterator[WatchRoutesResponse]:
    """A watch that ends after these messages."""
    for message in messages:
        yield message


async def followed(position: RoutePosition, *messages: WatchRoutesResponse) -> None:
    """Apply these messages of one watch."""
    async for _ in position.follow(stream(*messages)):
        pass


async def test_the_next_watch_continues_from_the_applied_version() -> None:
    """A change counts as applied when the next one is requested."""
    position = RoutePosition()
    assert position.request().since == 0
    async for _ in position.follow(stream(SNAPSHOT)):
        assert position.request().since == 0
    assert (position.request().since, position.request().directory_id) == (5, DIRECTORY)
    assert position.request(include_handle_keys=True).include_handle_keys


async def test_a_change_that_could_not_be_applied_is_requested_again() -> None:
    """The position stays before it."""
    position = RoutePosition()
    await followed(position, SNAPSHOT)
    with pytest.raises(ZeroDivisionError):
        async for _ in position.follow(stream(WatchRoutesResponse(directory_id=DIRECTORY, version=6))):
            raise ZeroDivisionError
    assert position.request().since == 5


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        (WatchRoutesResponse(topics=[CHANGED_B]), [A, CHANGED_B, GROUP]),
        (WatchRoutesResponse(deleted_topics=["a"]), [B, GROUP]),
        (WatchRoutesResponse(deleted_groups=["a"]), [A, B]),
        (WatchRoutesResponse(), [A, B, GROUP]),
    ],
)
async def test_equal_contents_are_accepted(changes: WatchRoutesResponse, rows: list[Topic | Group]) -> None:
    """The checksum is that of the rows after the changes."""
    position = RoutePosition()
    await followed(position, SNAPSHOT)
    changes.MergeFrom(
        WatchRoutesResponse(directory_id=DIRECTORY, version=6, resumed=True, contents_checksum=checksum(*rows))
    )
    await followed(position, changes)
    assert position.request().since == 6


@pytest.mark.parametrize("rows", [[A, B], [A, CHANGED_B, GROUP], [A, B, GROUP, Topic(name="c", version=4)]])
async def test_other_contents_lead_to_a_snapshot(rows: list[Topic | Group]) -> None:
    """A name server whose database was restored has other rows, with versions that this process already passed."""
    position = RoutePosition()
    await followed(position, SNAPSHOT)
    resumed = WatchRoutesResponse(directory_id=DIRECTORY, version=6, resumed=True, contents_checksum=checksum(*rows))
    with pytest.raises(Conflict, match="snapshot"):
        await followed(position, resumed)
    assert position.request().since == 0
    snapshot = WatchRoutesResponse()
    snapshot.CopyFrom(SNAPSHOT)
    snapshot.version = 6
    await followed(position, snapshot)
    assert position.request().since == 6


async def test_an_older_snapshot_is_followed_by_another_one() -> None:
    """A process keeps rows that are newer than a snapshot, so that it may have more than its position knows."""
    position = RoutePosition()
    await followed(position, WatchRoutesResponse(directory_id=DIRECTORY, version=6, snapshot=True, topics=[A]))
    await followed(position, SNAPSHOT, WatchRoutesResponse(directory_id=DIRECTORY, version=7))
    assert position.request().since == 0
    await followed(position, WatchRoutesResponse(directory_id=DIRECTORY, version=7, snapshot=True, topics=[A]))
    assert position.request().since == 7
    await followed(position, WatchRoutesResponse(directory_id="e", version=2, snapshot=True, topics=[A]))
    assert (position.request().since, position.request().directory_id) == (2, "e"), "versions of another directory"
