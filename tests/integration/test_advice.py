"""The doctor's advice when it sees only a part: no rights, or an enode that runs and cannot register."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ortoo.cli.doctor.run import _findings_behind
from ortoo.client import ClusterFinding, connect
from ortoo.client.admin.doctor.findings import DoctorFinding
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from ortoo.verification.servers.ports import free_address
from tests.findings import of_cluster
from tests.integration.guarded_cluster import SECRET, guarded


async def examined(address: str, environ: Mapping[str, str]) -> list[DoctorFinding]:
    """The doctor's findings behind a snode, without hurry."""
    return await _findings_behind([address], environ, "", "", asyncio.get_running_loop().time() + 30, 10)


async def test_a_user_without_rights_is_not_sent_to_the_log_of_the_snode(tmp_path: Path) -> None:
    """Nothing is known about the cluster then; an admin gets the findings."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(90):
        for user in ("shop", ""):
            environ = {"ORTOO_ACCESS_KEY": user, "ORTOO_SECRET_KEY": SECRET} if user else {}
            [found] = await examined(cluster.address, environ)
            assert found.name == "not permitted"
            assert "run the doctor as an admin or as an observer" in found.remedy
        found_by_admin = await examined(cluster.address, {"ORTOO_ACCESS_KEY": "ann", "ORTOO_SECRET_KEY": SECRET})
        assert "not permitted" not in [one.name for one in found_by_admin]


async def found_of(cluster: InProcessCluster, name: str, text: str) -> ClusterFinding:
    """A finding of the cluster, as soon as it is there."""
    async with connect(cluster.address) as mq:
        while True:
            for one in await mq.admin.operations.list_findings(timeout_s=30):
                if one.name == name and text in one.observed:
                    return one
            await cluster.clock.sleep(0.1)


@pytest.mark.parametrize("fault", ["wrong name server", "wrong token"])
async def test_an_enode_that_cannot_register_is_not_to_be_started_again(fault: str, tmp_path: Path) -> None:
    """It runs at its old address. The finding has the setting to correct, and following it ends all findings."""
    (tmp_path / "token").write_text("a-token-of-this-cluster")
    (tmp_path / "other").write_text("a-token-of-another-cluster")
    own: dict[str, Any] = {"cluster_token_file": str(tmp_path / "token")}
    settings = {"namesrv": {**own, "lease_s": 1.0}, "enode": own, "snode": own}
    async with open_cluster(tmp_path / "cluster", settings=settings) as cluster, asyncio.timeout(90):
        await cluster.create_topic("t")
        await cluster.close("enode-0")
        wrong = {"namesrv_address": free_address()} if fault == "wrong name server" else {}
        if fault == "wrong token":
            wrong = {"cluster_token_file": str(tmp_path / "other")}
        cluster.settings["enode"] = {**own, **wrong}
        await cluster.open_enode("enode-0", registers=False)
        if fault == "wrong name server":
            away = await found_of(cluster, "enode unavailable", "although it runs and answers")
            assert "do not restart it" in away.remedy
            reason = await found_of(cluster, "name server unavailable", "granted no lease")
            assert wrong["namesrv_address"] in reason.observed
            assert reason.process == "enode enode-0"
        else:
            away = await found_of(cluster, "enode unavailable", "although a process runs at its address")
            assert "cluster_token_file" in away.remedy
        await cluster.close("enode-0")
        cluster.settings["enode"] = own
        await cluster.open_enode("enode-0")
        async with connect(cluster.address) as mq:
            while of_cluster(await mq.admin.operations.list_findings(timeout_s=30)):
                await cluster.clock.sleep(0.1)
