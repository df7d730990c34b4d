"""A snode reads the groups that have a member at it, in bounded parts: a real Valkey, and many members elsewhere."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ortoo.common.process.randomness import Randomness
from ortoo.snode.membership import store as membership_store
from ortoo.snode.membership.group_members import GroupMember, Subscription
from ortoo.snode.membership.redis_url import redis_client
from ortoo.verification.servers.valkey import Valkey, valkey
from tests.integration.snode_of_store import StoreSnode, store_snode, until, until_none

ALIVE_SCORE = 9e15
ELSEWHERE = "elsewhere"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Valkey]:
    """A real server."""
    async with valkey(tmp_path / "valkey") as running:
        yield running


@pytest.fixture
async def client(server: Valkey) -> AsyncIterator[Any]:
    """A client of the server."""
    made = redis_client(server.url)
    yield made
    await made.aclose()


async def fill(client: Any, groups: int, members: int) -> None:
    """Store members of a snode that stays alive."""
    await client.zadd("ortoo/alive", {ELSEWHERE: ALIVE_SCORE})
    for begin in range(0, groups, 100):
        pipeline = client.pipeline(transaction=False)
        for group in (f"x{number}" for number in range(begin, min(begin + 100, groups))):
            texts = {f"c{n}": f"{n + 1} {text_of(f'c{n}')}" for n in range(members)}
            pipeline.hset(f"ortoo/members/{group}", mapping=texts)
            pipeline.sadd("ortoo/groups", group)
            pipeline.hset("ortoo/versions", group, members)
        await pipeline.execute()


def text_of(client_id: str, incarnation: str = ELSEWHERE) -> str:
    """The text of a member in the store."""
    return GroupMember(client_id, f"session of {client_id}", incarnation, incarnation, (Subscription("t"),)).encode()


async def read_calls(client: Any) -> int:
    """The number of requests so far that read members."""
    found = await client.info("commandstats")
    return sum(found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("hscan", "hgetall", "sscan", "smembers"))


async def calls_of_a_start(server: Valkey, client: Any, groups: int) -> int:
    """The reading requests of a snode that starts, gets a member, and compares, beside other groups."""
    await client.flushall()
    await fill(client, groups, 2)
    async with store_snode("a", server.url, timeout_s=3600.0) as one:
        before = await read_calls(client)
        one.join("g", "c")
        await until(lambda: one.membership.is_complete("g") and not one.membership.differs("g", 1))
        await one.store._stored.compare_versions(one.membership)
        assert list(one.membership.groups()) == ["g"]
        return await read_calls(client) - before


async def test_members_of_other_groups_are_not_read(server: Valkey, client: Any) -> None:
    """Four times the groups elsewhere: the same requests."""
    assert await calls_of_a_start(server, client, 100) == await calls_of_a_start(server, client, 400) == 1


async def test_a_group_is_whole_beside_many_members(server: Valkey, client: Any) -> None:
    """75,000 members elsewhere, 5,000 of them in the group: both snodes have the whole group, and keep it in step."""
    await fill(client, 35_000, 2)
    texts = {f"far{n}": f"{n + 1} {text_of(f'far{n}')}" for n in range(5_000)}
    await client.hset("ortoo/members/g", mapping=texts)
    await client.sadd("ortoo/groups", "g")
    async with store_snode("a", server.url, timeout_s=3600.0) as a, store_snode("b", server.url, timeout_s=3600.0) as b:
        for number in range(8):
            a.join("g", f"a{number}")
            b.join("g", f"b{number}")
        await until(lambda: len(a.members("g")) == len(b.members("g")) == 5_016)
        assert a.members("g") == b.members("g")
        assert list(a.membership.groups()) == list(b.membership.groups()) == ["g"]
        b.leave("g", "b0")
        await until(lambda: "b0" not in a.members("g"))


async def test_a_lost_change_is_found_by_the_version(server: Valkey, client: Any) -> None:
    """A record that reached the store without its message is read at the next comparison, and no other group is."""
    async with store_snode("a", server.url, timeout_s=3600.0) as a:
        for group in ("g", "h"):
            a.join(group, "own")
        await until(lambda: not any(a.membership.differs(group, 1) for group in "gh") and not a.membership.unpublished)
        await client.zadd("ortoo/alive", {ELSEWHERE: ALIVE_SCORE})
        await client.hset("ortoo/members/g", "silent", f"7 {text_of('silent')}")
        await client.hincrby("ortoo/versions", "g", 1)
        before = await read_calls(client)
        await a.store._stored.compare_versions(a.membership)
        await until(lambda: "silent" in a.members("g"))
        assert await read_calls(client) == before + 1


async def test_records_that_no_snode_follows_are_removed_in_time(
    server: Valkey, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of a snode that died alone, and own ones that an older state of the store has again."""
    monkeypatch.setattr(membership_store, "EXAMINE_INTERVAL_S", 0.05)
    await fill(client, 3, 2)
    for group, incarnation in (("dead", "gone"), ("ghost", "a")):
        await client.hset(f"ortoo/members/{group}", "c", f"3 {text_of('c', incarnation)}")
        await client.sadd("ortoo/groups", group)
    async with store_snode("a", server.url, timeout_s=0.2) as a, asyncio.timeout(60):
        while await client.smembers("ortoo/groups") != {"x0", "x1", "x2"}:
            await a.store.runtime.clock.sleep(0.02)
    assert await client.hlen("ortoo/members/x0") == 2


async def test_members_of_a_snode_that_has_just_started_are_no_dead_ones(server: Valkey, client: Any) -> None:
    """The examination asks which snodes are alive after it has read the records, not before."""
    async with store_snode("a", server.url, timeout_s=3600.0) as a, store_snode("b", server.url, timeout_s=3600.0) as b:
        a.store._grace_until_s = 0.0
        b.join("g", "c")
        await until(lambda: not b.membership.unpublished)
        await client.hset("ortoo/members/h", "c", f"3 {text_of('c', 'gone')}")
        await client.sadd("ortoo/groups", "h")
        assert "b" not in a.store._alive
        await a.store._examine()
        assert await client.smembers("ortoo/groups") == {"g"}


def differences(snodes: list[StoreSnode], expected: dict[str, dict[str, str]]) -> list[object]:
    """The groups whose members a snode does not know as expected. An older snode knows all groups."""
    return [
        (one.name, group, one.members(group), members)
        for group, members in expected.items()
        for one in snodes
        if "older" in one.name or one.name in members.values()
        if one.members(group) != members
    ]


@pytest.mark.parametrize("seed", range(3))
async def test_older_and_newer_snodes_agree(server: Valkey, client: Any, seed: int) -> None:
    """During a rolling upgrade: after any joins, departures and moves, and after the store was emptied or replaced."""
    random, expected = Randomness(seed), dict[str, dict[str, str]]()
    async with (
        store_snode("older", server.url, older=True, timeout_s=3.0) as older,
        store_snode("a", server.url, timeout_s=3.0) as a,
        store_snode("b", server.url, timeout_s=3.0) as b,
    ):
        snodes = [older, a, b]
        for step in range(150):
            one, group, name = snodes[random.below(3)], f"g{random.below(5)}", f"c{random.below(6)}"
            members = expected.setdefault(group, {})
            if members.get(name) == one.name:
                one.leave(group, name)
                del members[name]
            elif name not in members:
                one.join(group, name)
                members[name] = one.name
            if step == 70:
                await until_none(lambda: differences(snodes, expected))
                await client.flushall()
            if step == 110:
                await until_none(lambda: differences(snodes, expected))
                await server.stop()
                await server.start()
        await until_none(lambda: differences(snodes, expected))
        async with store_snode("older too", server.url, older=True) as late, store_snode("late", server.url) as newer:
            for group in expected:
                newer.join(group, "late")
                expected[group]["late"] = "late"
            await until_none(lambda: differences([*snodes, late, newer], expected))
