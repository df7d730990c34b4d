"""G15: the data of a group end only by a due deletion or by inactivity, never because other data are absent."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from ortoo.common.groups.group_topics import REPLAY_PREFIX
from ortoo.common.groups.sinks import SinkAccount, SinkIdentity, sink_group
from ortoo.enode.changes.groups import GroupMode, RetryCopiesStored
from ortoo.enode.changes.pops import PopFinished, PopLeased
from ortoo.enode.cluster.group_retention import GroupRetention
from ortoo.enode.state.tables.pops import FinishReason
from ortoo.enode.store.lock_table import LockRequest
from ortoo.testing.disks.disk_image import CrashOutcome
from ortoo.v1 import group_deletion_pb2, topic_pb2
from ortoo.v1 import namesrv_pb2 as pb
from tests.contract.one_store import TOPIC, OneStore

OWN, OTHER = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
DAY_MS = 86_400_000
RETENTION_MS = 30 * DAY_MS


def said(*groups: str, directory_id: str = OWN, by_use: tuple[str, ...] = (), **more: object) -> pb.WatchRoutesResponse:
    """A name server's answer about groups."""
    declared = [topic_pb2.Group(name=name) for name in groups]
    used = [topic_pb2.Group(name=name, auto_created=True) for name in by_use]
    fields: dict[str, object] = {"snapshot": True, "version": 9} | more
    return pb.WatchRoutesResponse(directory_id=directory_id, groups=declared + used, **fields)  # type: ignore[arg-type]


def due(name: str, version: int, deleted_at_ms: int) -> list[group_deletion_pb2.DueGroup]:
    """One deletion that is due."""
    return [group_deletion_pb2.DueGroup(name=name, version=version, deleted_at_ms=deleted_at_ms)]


@dataclass(slots=True)
class Groups:
    """A store with all kinds of data of groups."""

    one: OneStore = field(default_factory=OneStore)
    lives: GroupRetention = field(init=False)
    is_following: bool = True

    async def open(self, *names: str) -> "Groups":
        """Open it, receive an empty directory, and have groups use it."""
        await self.one.open()
        self.follow()
        await self.lives.apply(said())
        for name in names:
            await self.use(name)
        return self

    def follow(self) -> None:
        """Use the groups of the current store."""
        self.lives = GroupRetention(
            self.one.store, self.one.clock, retention_ms=RETENTION_MS, following=lambda: self.is_following
        )

    async def use(self, name: str) -> None:
        """A group commits, locks, pops, nacks, and sets its delivery mode."""
        store = self.one.store
        await store.modes.use(TOPIC, name, GroupMode.OFFSETS)
        await store.offsets.commit(TOPIC, name, {0: 4, 1: 7})
        await store.locks.take([LockRequest((TOPIC, name, 0), "c", "s")])
        await store.locks.release([((TOPIC, name, 0), "s")])
        await store.change(PopLeased(TOPIC, name, 2, 1, self.one.clock.now_ms() + 1, 1, ((2, 3, 1),)))
        await store.change(RetryCopiesStored(TOPIC, name, 1, ((9, 0),)))

    def kept(self) -> dict[str, int]:
        """Group to the number of tables that contain it."""
        state = self.one.store.engine.state
        places = [place for table in (state.pops, state.sent_back) for place in table._topics.get(TOPIC, {})]
        names = [name for table in (state.offsets, state.locks, state.modes) for name in table._topics.get(TOPIC, {})]
        names += [*state.groups._topics.get(TOPIC, {}), *dict.fromkeys(group for group, _ in places)]
        return {name: names.count(name) for name in sorted(names)}

    def passes(self, days: float) -> None:
        """Let time pass."""
        self.one.clock.advance(days * 86_400)


WHOLE = 5
ENDS: dict[str, Callable[[Groups], object]] = {
    "restarted": lambda groups: groups.one.restart(),
    "power cut": lambda groups: groups.one.crash(3, CrashOutcome()),
}


async def test_a_due_deletion_drops_everything_of_the_group_once() -> None:
    """A repeated deletion does not end a later group of the same name, also after a restart."""
    groups = await Groups().open("g", "other")
    groups.passes(1)
    at_ms = groups.one.clock.now_ms()
    assert groups.kept() == {"g": WHOLE, "other": WHOLE}
    message = said("other", due_groups=due("g", 7, at_ms))
    await groups.lives.apply(message)
    assert groups.kept() == {"other": WHOLE}
    assert groups.lives.dropped == {"deleted": 1, "silent": 0}
    assert groups.one.store.locks.table.generation((TOPIC, "g", 0)) == 0
    groups.passes(1)
    await groups.use("g")
    for _ in range(2):
        await groups.lives.apply(message)
        assert groups.kept() == {"g": WHOLE, "other": WHOLE}
        await groups.one.restart()
        groups.follow()
    assert groups.one.store.offsets.of(TOPIC, "g") == {0: 4, 1: 7, 2: 0}
    await groups.one.store.close()


async def test_what_is_used_after_the_deletion_stays() -> None:
    """A commit, a held lock, and a lock that is being written during the deletion keep the group."""
    groups = await Groups().open("used", "held", "left")
    groups.passes(1)
    at_ms = groups.one.clock.now_ms()
    groups.passes(0.1)
    await groups.one.store.offsets.commit(TOPIC, "used", {0: 5})
    await groups.one.store.locks.take([LockRequest((TOPIC, "held", 0), "c", "s")])
    for version, name in enumerate(("used", "held", "left"), 5):
        await groups.lives.apply(said(due_groups=due(name, version, at_ms)))
    assert groups.kept() == {"used": WHOLE, "held": WHOLE}
    await groups.one.store.close()


async def test_silence_forgets_of_no_dead_letter_that_it_was_sent_again() -> None:
    """G15: dead-letter data are not declared, and dead letters may be kept longer than inactive groups."""
    groups = await Groups().open("silent")
    await groups.one.store.change(PopFinished(TOPIC, f"{REPLAY_PREFIX}silent", 0, FinishReason.REPLAYED, ((0, 5),)))
    await groups.lives.check()
    groups.passes(31)
    await groups.lives.check()
    known = groups.one.store.engine.state.pops.get((TOPIC, f"{REPLAY_PREFIX}silent", 0))
    assert known is not None
    assert known.intervals.floor == 5
    assert groups.kept() == {f"{REPLAY_PREFIX}silent": 3}
    await groups.one.store.close()


@pytest.mark.parametrize("end", ENDS)
async def test_silence_ends_what_nobody_declared(end: str) -> None:
    """A replay of the log has the same result; a group that only reads is not inactive."""
    groups = await Groups().open("silent", "reader", "holder")
    before: object = None
    for _ in range(32):
        groups.passes(1)
        groups.one.store.offsets.of(TOPIC, "reader")
        await groups.one.store.locks.take([LockRequest((TOPIC, "holder", 0), "c", "s")])
        await groups.lives.check()
        before = list(groups.one.store.engine.state.checkpoint())
        assert await ENDS[end](groups) is not None  # type: ignore[misc]
        assert list(groups.one.store.engine.state.checkpoint()) == before
        dropped = groups.lives.dropped["silent"]
        groups.follow()
        groups.lives.dropped["silent"] = dropped
    assert groups.kept() == {"reader": WHOLE, "holder": WHOLE}
    assert groups.lives.dropped == {"deleted": 0, "silent": 1}
    await groups.one.store.close()


NEVER: dict[str, list[pb.WatchRoutesResponse]] = {
    "an empty directory": [said("g"), said(directory_id=OTHER)],
    "its own, older": [said("g"), said(version=1)],
    "its name among the deleted": [said("g"), said(snapshot=False, deleted_groups=["g"])],
    "made by use in another": [said("g"), said(directory_id=OTHER, by_use=("g",))],
}


@pytest.mark.parametrize("heard", NEVER.values(), ids=NEVER.keys())
async def test_a_group_that_is_absent_now_and_was_declared_stays(heard: list[pb.WatchRoutesResponse]) -> None:
    """Its owner may have another name server now, so that years of inactivity do not end it (G15)."""
    groups = await Groups().open("g", "by use")
    for message in heard:
        await groups.lives.apply(message)
    for _ in range(3):
        await groups.lives.check()
        groups.passes(40)
    await groups.lives.check()
    assert groups.kept() == {"g": WHOLE}
    await groups.one.store.close()


async def test_nobody_is_silent_for_an_enode_that_hears_no_directory() -> None:
    """G15: it may have missed the declaration of the group."""
    groups = await Groups().open("g")
    groups.is_following = False
    groups.passes(40)
    await groups.lives.check()
    assert groups.kept() == {"g": WHOLE}
    groups.is_following = True
    await groups.lives.check()
    assert groups.kept() == {}
    await groups.one.store.close()


async def test_the_account_of_a_sink_stays_until_it_is_reset() -> None:
    """A query may continue after any time: without its account, its last batch would be stored twice."""
    groups = await Groups().open()
    group, account = sink_group("copy"), SinkAccount.of_query("q", 3)
    await groups.one.store.sinks.commit(TOPIC, group, {0: account.offset}, SinkIdentity("copy", "q"))
    for _ in range(40):
        groups.passes(1)
        await groups.lives.check()
    assert [one.group for one in groups.one.store.sinks.list_all()] == [group]
    reset = replace(account, is_reset=True)
    await groups.one.store.sinks.commit(TOPIC, group, {0: reset.offset}, SinkIdentity("copy", "q"))
    for _ in range(32):
        groups.passes(1)
        await groups.lives.check()
    assert list(groups.one.store.sinks.list_all()) == []
    assert groups.kept() == {}
    await groups.one.store.close()
