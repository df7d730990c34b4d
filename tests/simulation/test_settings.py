"""`ortoo settings`: values in force in running processes are shown and changed from one place, all or none."""

import asyncio

import pytest

from ortoo.client import Client, NotFound, OrtooError, Unavailable
from ortoo.common.errors import Invalid
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from tests.simulation.scripted_cluster import ScriptedCluster, play


async def values(client: Client, role: str, name: str) -> dict[str, tuple[str, str]]:
    """Process to (value, origin) of a setting."""
    found = await client.admin.operations.list_settings(role)
    return {each.name: (one.value, one.origin) for each in found for one in each.settings if one.name == name}


def test_settings_of_all_processes_of_a_role_change_together() -> None:
    """By a snode for itself, its neighbours, enodes and name servers; one refusal refuses all."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("operator") as client:
            change = client.admin.operations.update_settings
            with pytest.raises(OrtooError, match="new"):
                async with client.producer("new") as producer:
                    await producer.send(b"nobody made it")
            await change("snode", {"auto_create_topics": "true", "auto_create_queue_count": "2"})
            assert set((await values(client, "snode", "auto_create_topics")).values()) == {("true", "operator")}
            async with client.producer("new") as producer:
                await producer.send(b"a topic by its use")
            assert len((await client.admin.describe_topic("new")).queues) == 4
            assert [each.name for each in await change("enode", {"delay_max_ms": "1000"})] == ["enode-0", "enode-1"]
            assert len(await values(client, "namesrv", "watchers_max")) == 2
            await change("namesrv", {"watchers_max": "50"}, process="namesrv-0")
            after = await values(client, "namesrv", "watchers_max")
            assert (after["namesrv-0"], after["namesrv-1"][0]) == (("50", "operator"), "1000")
            with pytest.raises(Invalid, match="expected 0 to") as caught:
                await change("enode", {"dedup_window_ms": "1", "delay_max_ms": "-1"})
            assert caught.value.field == "delay_max_ms"
            with pytest.raises(Invalid, match="restart"):
                await change("enode", {"data_dir": "elsewhere"})
            with pytest.raises(Invalid, match="namesrv, enode or snode"):
                await client.admin.operations.list_settings("broker")
            with pytest.raises(NotFound, match="enode-7"):
                await change("enode", {"delay_max_ms": "1"}, process="enode-7")
            stage.cluster.enodes[1].kill()
            await stage.clock.sleep(20)
            with pytest.raises(Unavailable, match=r"enode-1.*nothing was changed"):
                await change("enode", {"delay_max_ms": "5"})
            first, second = await client.admin.operations.list_setting_changes("enode")
            assert [(one.name, one.current, one.origin) for one in first.changes] == [
                ("delay_max_ms", "1000", "operator")
            ]
            assert first.changes[0].changed_by
            assert "not running" in second.error
            findings = [one for one in await client.admin.operations.list_findings() if one.name == "unsaved settings"]
            assert {one.process for one in findings} >= {"enode enode-0", "name server namesrv-0"}
            await change("enode", {}, reset=["delay_max_ms"], process="enode-0")
            assert (await values(client, "enode", "delay_max_ms"))["enode-0"][1] != "operator"

    play(script, shape=ClusterShape(name_servers=2, enodes=2, snodes=2))


def test_members_of_an_enode_change_together() -> None:
    """The next leader has the changed values, too."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("operator") as client:
            async with asyncio.timeout(60):
                while not [one for one in await client.admin.replicas.list() if one.leader and len(one.replicas) == 3]:
                    await stage.clock.sleep(0.5)
            changed = await client.admin.operations.update_settings("enode", {"store.retention_bytes": "1000000000"})
            assert [len(each.changes) for each in changed] == [1, 1, 1]
            assert len({each.address for each in changed}) == 3

    play(script, shape=ClusterShape(enodes=1, snodes=1, replicas=3))
