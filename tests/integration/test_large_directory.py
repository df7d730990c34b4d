"""A directory that is larger than one message, over the wire."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from ortoo.common.cluster.route_watch import assemble_changes
from ortoo.common.directory.group import Group
from ortoo.common.directory.topic import MessageType, Permission, Placement, PublishPlace
from ortoo.common.groups.retry_policy import RetryKind, RetryPolicy
from ortoo.common.grpc.channels import MESSAGE_BYTES_MAX, Channels
from ortoo.common.grpc.server import GrpcServer
from ortoo.namesrv.decisions.process_leases import Enode
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.routes.route_changes import Routes, StoredDirectory, WatchStart
from ortoo.namesrv.decisions.topics import Topic
from ortoo.namesrv.rpc import service
from ortoo.namesrv.rpc.route_encoding import PART_BYTES, RouteEncoder
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub

TOPICS = 70_000
NAME = "t" * 115
BIG64, BIG32, BIG_MS = (1 << 64) - 1, 1 << 20, 1 << 50


def everything() -> RouteChange:
    """A snapshot of more than 8 MiB, as only an older name server could have stored it."""
    topics = tuple(
        Topic(f"{NAME}{number}", number + 1, 9, Permission.READ_WRITE, (Placement("enode-0", 4, 4),), 1)
        for number in range(TOPICS)
    )
    groups = tuple(Group(f"g{number}", 9, True, 1, 1, 1) for number in range(1_000))
    return RouteChange(9, True, topics, groups=groups, enodes=(Enode("enode-0", "h:1", "s", alive=True),))


def encoded(change: RouteChange) -> list[pb.WatchRoutesResponse]:
    """The messages of a change, as a watcher decodes them."""
    messages = RouteEncoder(with_placement_sets=True).messages(change, include_handle_keys=False)
    return [pb.WatchRoutesResponse.FromString(one) for one in messages]


class Large:
    """A directory with this snapshot."""

    def __init__(self, change: RouteChange) -> None:
        self._change = change
        self.watches = self

    def check_complete(self) -> None:
        """The watcher gets all lite topics, of which there are none."""

    def check_expandable(self) -> None:
        """The watcher accepts sets of placements."""
        raise AssertionError

    async def watch(self, start: WatchStart) -> AsyncGenerator[RouteChange, None]:
        """The whole directory, and one change."""
        yield self._change
        yield RouteChange(10, deleted_topics=("gone",))


async def test_routes_above_the_limit_of_a_message_are_loaded() -> None:
    """A watch sends them in parts; joined they are the whole directory, each item once, followed by the changes."""
    change = everything()
    directory, none = Large(change), None
    large: Any = directory
    absent: Any = none
    handlers = service.NameService(large, absent, absent, absent, absent)
    server = GrpcServer("127.0.0.1:0", [(service.NAME, lambda added: service.add_name_service(added, handlers))])
    async with asyncio.timeout(60), server, Channels() as channels:
        call = NameServiceStub(channels.channel_to(server.address)).WatchRoutes(
            pb.WatchRoutesRequest(accepts_placement_sets=True)
        )
        news = [one async for one in assemble_changes(call)]
    assert news[0].ByteSize() > MESSAGE_BYTES_MAX
    assert [len(one.topics) for one in news] == [TOPICS, 0]
    assert (news[0].snapshot, news[0].version, news[1].snapshot) == (True, 9, False)
    assert [one.name for one in news[0].topics] == [one.name for one in change.topics]
    assert [len(one.placements) for one in news[0].placement_sets] == [1]
    assert {one.placement_set_id for one in news[0].topics} == {news[0].placement_sets[0].set_id}
    assert len(news[0].groups) == len(change.groups)
    assert list(news[1].deleted_topics) == ["gone"]


def test_an_older_reader_loses_nothing_by_parts() -> None:
    """Only the first part is marked as a snapshot; a reader that does not join parts takes the others for changes."""
    parts = encoded(everything())
    assert len(parts) > 8
    assert [part.snapshot for part in parts] == [True] + [False] * (len(parts) - 1)
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    assert [one.name for one in parts[0].enodes] == ["enode-0"]
    assert max(part.ByteSize() for part in parts) <= PART_BYTES + 1_000


@pytest.mark.parametrize("enodes", [1, 3, 40])
def test_the_bound_counts_no_less_than_what_is_sent(enodes: int) -> None:
    """Topics and groups with the largest numbers and longest lists are counted with their size, or more."""
    placements = tuple(Placement(f"enode-{number}", BIG32, BIG32) for number in range(enodes))
    order = tuple(PublishPlace(one.enode, BIG32) for one in placements)
    topic = Topic("t" * 127, BIG64, BIG64, Permission.READ_WRITE, placements, BIG_MS, MessageType.PRIORITY, order)
    retry = RetryPolicy(RetryKind.LIST, listed_delays_ms=(604_800_000,) * 64)
    exponential = RetryPolicy(RetryKind.EXPONENTIAL, 604_800_000, 604_800_000, 99.5)
    for policy in (retry, exponential, RetryPolicy()):
        group = Group("g" * 120, BIG64, True, BIG32, BIG32, BIG_MS, False, False, BIG64, BIG32, policy, BIG32, True)
        for change in (RouteChange(1, topics=(topic,)), RouteChange(1, groups=(group,))):
            [sent] = encoded(change)
            [alone] = encoded(RouteChange(1))
            assert Routes(StoredDirectory(0)).growth_bytes(change) >= sent.ByteSize() - alone.ByteSize()
