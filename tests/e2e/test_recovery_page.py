"""docs/operations/recovery.md: a whole cluster is lost and restored by the page's own commands."""

import asyncio
import shutil
from pathlib import Path

import pytest

from ortoo.verification.servers import command
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.e2e.test_documents import says, steps

DISKS = ("namesrv", "enode-0")


async def run(cluster: InProcessCluster, *lines: str) -> None:
    """Run commands, which must succeed."""
    for line in lines:
        outcome = await command.run(line.split(), cluster.address)
        assert outcome.exit_code == 0, (line, outcome)


async def start(cluster: InProcessCluster) -> None:
    """Start all processes on the restored disks, and wait until the doctor finds the topic that has no place yet."""
    await cluster.open_namesrv()
    await cluster.open_enode("enode-0")
    await cluster.open_snode("snode-0")
    async with asyncio.timeout(120):
        while "payments" not in (await command.run(["ortoo", "topic", "offered"], cluster.address)).stdout:
            await cluster.clock.sleep(0.1)


async def test_a_lost_cluster_is_restored_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory's backup is older than the store's, so a topic is adopted; both topics have their messages."""
    monkeypatch.chdir(tmp_path)
    async with open_cluster(tmp_path / "ortoo-data") as cluster:
        (tmp_path / "namesrv.toml").write_text(f'data_dir = "{cluster.folder / "namesrv"}"\n')
        (tmp_path / "backups").mkdir()
        await run(
            cluster,
            "ortoo topic create orders",
            "ortoo group update billing --attempts 5",
            "ortoo send orders first",
            "ortoo-namesrv backup backups/directory -c namesrv.toml",
            "ortoo topic create payments",
        )
        late = ["ortoo", "send", "payments", "after the backup of the directory"]
        assert (await command.run(late, cluster.address)).exit_code == 0
        await run(cluster, "ortoo-enode backup ortoo-data/enode-0 backups/enode-0")
        for name in ("snode-0", "enode-0", "namesrv-0"):
            await cluster.close(name)
        for disk in DISKS:
            shutil.rmtree(cluster.folder / disk)
        for number, (line, expected) in enumerate(steps("operations/recovery.md")):
            if number == len(DISKS):
                await start(cluster)
            outcome = await command.run(line.split(), cluster.address)
            assert outcome.exit_code == 0, (line, outcome)
            assert says(outcome.stdout, expected), (line, expected, outcome)
        assert number == 3
        found = await command.run(["ortoo", "tail", "orders", "--from-first", "--no-follow"], cluster.address)
        assert "first" in found.stdout, found
