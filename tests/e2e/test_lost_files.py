"""Real processes with missing files: a replica without its hard state, and an enode whose folder was moved away."""

import asyncio
import contextlib
import re
import shutil
from pathlib import Path

import pytest

from ortoo.client import Client, Invalid, OrtooError, Queue, connect
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.service import EXIT_INVALID_SETTINGS
from ortoo.verification.servers.command import run
from ortoo.verification.servers.processes import DidNotStart, ProcessCluster, RoleProcess, process_cluster
from tests.e2e.replica_cluster import LEADING, leading, members_of, replace_disk, replica_cluster, whole

STARTS = 3
UNACKNOWLEDGED = b"into nothing"
QUICK = {"namesrv": {"LEASE_S": 2, "EXPIRY_INTERVAL_S": 0.1}, "enode": {"HEARTBEAT_INTERVAL_S": 0.3}}


async def made(mq: Client) -> None:
    """A topic of one queue."""
    while True:
        with contextlib.suppress(OrtooError):
            await mq.admin.ensure_topic("t", queue_count=1)
            return
        await SystemClock().sleep(0.1)


async def sent(mq: Client, count: int, stored: list[bytes]) -> Queue:
    """Send messages one after another, each until it is acknowledged; return their places."""
    queue: Queue | None = None
    while count:
        with contextlib.suppress(OrtooError):
            async with mq.producer("t") as producer:
                while count:
                    body = b"%d" % len(stored)
                    queue = (await producer.send(body)).queue
                    stored.append(body)
                    count -= 1
    assert queue is not None
    return queue


async def all_of(mq: Client, queue: Queue) -> list[bytes]:
    """Every body of a queue."""
    return [body async for batch in mq.fetch(queue) for body in batch.bodies()]


async def refused(process: RoleProcess) -> str:
    """Start a process that refuses its folder; return its output."""
    with pytest.raises(DidNotStart) as caught:
        await process.start()
    assert caught.value.exit_code == EXIT_INVALID_SETTINGS
    return caught.value.log


@pytest.mark.timeout(300)
async def test_a_replica_that_lost_its_hard_state_never_begins_a_set_of_its_own(tmp_path: Path) -> None:
    """Only `reign` is removed. Each of three starts is refused with a remedy; nothing acknowledged is lost.

    The set keeps working meanwhile, also without a further replica, and the disk rejoins as a new replica.
    """
    async with replica_cluster(tmp_path) as members, connect(members.address) as mq:
        first = members.enodes[0]
        stored: list[bytes] = []
        await leading(members, mq)
        await made(mq)
        await whole(mq)
        queue = await sent(mq, 100, stored)
        await first.kill()
        (first.data / "reign").unlink()
        left = {file.name: file.read_bytes() for file in first.data.iterdir()}
        for _ in range(STARTS):
            said = await refused(first)
            assert "its hard state, the file" in said
            assert "`ortoo enode add`" in said
            assert {file.name: file.read_bytes() for file in first.data.iterdir()} == left
            await sent(mq, 20, stored)
        assert {one.number for one in await members_of(mq) if one.state == LEADING} <= {2, 3}
        await replace_disk(mq, first)
        await (await leading(members, mq)).kill()
        await sent(mq, 20, stored)
        assert await all_of(mq, queue) == stored


@pytest.mark.timeout(300)
async def test_an_enode_whose_folder_is_moved_away_acknowledges_nothing(tmp_path: Path) -> None:
    """Neither while it runs nor on an empty folder under its name; with its folder back all messages are there.

    `ortoo doctor` names both, and the process's health is red. Only an operator's command accepts the empty folder.
    """
    async with process_cluster(tmp_path, environ=QUICK) as cluster, connect(cluster.address) as mq:
        enode, stored = cluster.enode, list[bytes]()
        await made(mq)
        queue = await sent(mq, 30, stored)
        away = tmp_path / "away"
        shutil.move(enode.data, away)
        assert await unacknowledged(mq)
        assert "data folder missing" in await doctor(cluster, "data folder missing")
        await enode.kill()
        await enode.start()  # on a folder that it creates
        assert await unacknowledged(mq)
        former, _ = stores_in(await doctor(cluster, "store mismatch"))
        await enode.kill()
        shutil.rmtree(enode.data)
        shutil.move(away, enode.data)
        await enode.start()
        await sent(mq, 5, stored)
        # A message without an acknowledgement may be there: it was on its way when the folder was moved.
        assert [one for one in await all_of(mq, queue) if one != UNACKNOWLEDGED] == stored

        await enode.kill()
        shutil.rmtree(enode.data)
        await enode.start()
        known, new = stores_in(await doctor(cluster, "store mismatch"))
        assert known == former
        with pytest.raises(Invalid, match="already"):
            await mq.admin.replicas.accept_store("enode-0", former)
        assert await mq.admin.replicas.accept_store("enode-0", new) == former
        await sent(mq, 5, [])


async def unacknowledged(mq: Client) -> bool:
    """Whether none of these sends is acknowledged."""

    async def one() -> bool:
        with contextlib.suppress(OrtooError, TimeoutError):
            async with asyncio.timeout(5), mq.producer("t") as producer:
                await producer.send(UNACKNOWLEDGED)
                return True
        return False

    return not any(await asyncio.gather(*(one() for _ in range(20))))


async def doctor(cluster: ProcessCluster, wanted: str) -> str:
    """The output of `ortoo doctor`, as soon as it names a finding."""
    async with asyncio.timeout(120):
        while True:
            said = await run(("ortoo", "doctor", "--patience", "10"), cluster.address)
            if wanted in said.stdout:
                return said.stdout


def stores_in(said: str) -> tuple[str, str]:
    """The id of the enode's registered store, and of the store that it has now."""
    found = re.search(r"registered store (\w+), and this process has store (\w+)", " ".join(said.split()))
    assert found is not None, said
    return found[1], found[2]
