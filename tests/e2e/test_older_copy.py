"""Real processes: the folder of an enode without replicas is put back as an older copy, as by a machine snapshot."""

import shutil
from pathlib import Path

import pytest

from ortoo.client import connect
from ortoo.verification.servers.command import run
from ortoo.verification.servers.processes import process_cluster
from tests.e2e.test_lost_files import QUICK, all_of, doctor, made, sent, unacknowledged


@pytest.mark.timeout(300)
async def test_an_older_copy_of_a_folder_is_refused_until_its_loss_is_accepted(tmp_path: Path) -> None:
    """Also after a restart of the name server. The newest folder, and a copy with another id, serve."""
    async with process_cluster(tmp_path, environ=QUICK) as cluster, connect(cluster.address) as mq:
        enode, stored = cluster.enode, list[bytes]()
        older, newest = tmp_path / "older", tmp_path / "newest"
        await made(mq)
        await sent(mq, 20, stored)
        await enode.stop()
        shutil.copytree(enode.data, older)
        await enode.start()
        queue = await sent(mq, 20, stored)
        await enode.stop()
        await enode.start()  # each start reports its log
        await sent(mq, 5, stored)
        await enode.stop()
        shutil.move(enode.data, newest)
        await cluster.namesrv.stop()
        await cluster.namesrv.start()

        shutil.copytree(older, enode.data)
        await enode.start()
        said = " ".join((await doctor(cluster, "log rolled back")).split())
        assert "Its folder is an older copy" in said
        assert "ortoo-enode elect DIR --lose --apply" in said
        assert await unacknowledged(mq)
        await enode.wait_for_log("store_refused")
        await enode.stop()

        shutil.rmtree(enode.data)
        shutil.move(newest, enode.data)
        await enode.start()
        await sent(mq, 5, stored)
        assert await all_of(mq, queue) == stored
        await enode.stop()

        shutil.rmtree(enode.data)
        shutil.move(older, enode.data)
        elect = ("ortoo-enode", "elect", str(enode.data), "--lose", "--apply")
        assert (await run(elect, cluster.address)).exit_code == 0
        await enode.start()
        kept = stored[:20]
        await sent(mq, 5, kept)
        assert await all_of(mq, queue) == kept
