"""The doctor of a cluster whose lists take longer than it waits: it only reports the checks that are incomplete."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ortoo.cli.doctor.run import _findings_behind
from ortoo.client import Admin, Unsupported
from ortoo.client.admin.doctor.findings import DoctorFinding
from ortoo.client.admin.operations import Operations
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.ports import free_address
from tests.findings import of_cluster

LISTS = ("list_groups", "list_topics", "list_orphaned_topics", "list_deleted_topics")


async def examined(
    address: str, topic: str = "", group: str = "", *, limit_s: float = 60.0, details_s: float = 20.0
) -> list[DoctorFinding]:
    """The findings of the doctor at a snode. The usual times are those of a slow machine."""
    deadline_s = asyncio.get_running_loop().time() + limit_s
    return of_cluster(await _findings_behind([address], {}, topic, group, deadline_s, details_s))


async def test_a_list_that_takes_too_long_is_no_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is called unavailable, no topic or group unknown, and the exit code stays 0."""

    async def endless(self: Admin) -> Any:
        await asyncio.get_running_loop().create_future()

    async with open_cluster(tmp_path) as cluster:
        await cluster.create_topic("orders")
        for name in LISTS:
            monkeypatch.setattr(Admin, name, endless)
        (found,) = await examined(cluster.address, "orders", "billing", details_s=8.0)
    assert (found.name, found.critical) == ("checks incomplete", False)
    assert "deleted topics" in found.observed
    assert "--patience" in found.remedy


async def test_lists_are_queried_only_if_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All topics only for names similar to an unknown one, all groups only for a group; no list is queried twice."""
    asked: Counter[str] = Counter()

    def count(name: str) -> None:
        query = getattr(Admin, name)

        async def counting(self: Admin) -> Any:
            asked[name] += 1
            return await query(self)

        monkeypatch.setattr(Admin, name, counting)

    for name in LISTS:
        count(name)
    async with open_cluster(tmp_path) as cluster:
        await cluster.create_topic("orders")
        assert await examined(cluster.address, "orders") == []
        assert asked == {"list_orphaned_topics": 1, "list_deleted_topics": 1}
        asked.clear()
        found = await examined(cluster.address, "order", "billing")
        assert [one.name for one in found] == ["unknown topic", "unknown group"]
        assert "did you mean orders?" in found[0].remedy
        assert asked == dict.fromkeys(LISTS, 1)


async def test_without_a_name_server_no_group_is_called_unknown(tmp_path: Path) -> None:
    """The list of groups failed, so nothing is known about the group."""
    async with open_cluster(tmp_path) as cluster:
        await cluster.create_topic("orders")
        await cluster.close("namesrv-0")
        found = await examined(cluster.address, "orders", "billing")
    assert "name server unavailable" in [one.name for one in found]
    assert "unknown group" not in [one.name for one in found]


async def test_findings_that_take_too_long_are_no_lack_of_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snode may be busy with a long list. The user need not be another one."""

    async def endless(self: Operations, *, timeout_s: float) -> Any:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(Operations, "examine", endless)
    async with open_cluster(tmp_path) as cluster:
        (found,) = await examined(cluster.address, limit_s=8.0, details_s=3.0)
    assert (found.name, found.critical) == ("checks incomplete", False)
    assert "findings of the processes" in found.observed


async def test_processes_that_cannot_be_queried_are_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As at a snode of an older version. The other checks use the answers of this snode."""

    async def unknown(self: Operations, *, timeout_s: float) -> Any:
        raise Unsupported("the snode does not have this call")

    monkeypatch.setattr(Operations, "examine", unknown)
    async with open_cluster(tmp_path) as cluster:
        found = await examined(cluster.address, "orders")
    assert {one.name: one.critical for one in found} == {"processes not queried": False, "unknown topic": True}


async def test_a_snode_that_answers_no_query_is_a_finding() -> None:
    """The finding has the error of the call."""
    [found] = await examined(free_address(), limit_s=1.0, details_s=0.5)
    assert found.name == "no answer"
    assert found.critical
