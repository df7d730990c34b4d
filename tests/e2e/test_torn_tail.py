"""A killed enode whose last segment is truncated anywhere starts, keeps the batches before the cut, and continues."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import encode
from ortoo.enode.disk.durable_mark import decode_slots
from ortoo.enode.log.segment import SUFFIX
from ortoo.verification.servers import grpcurl
from ortoo.verification.servers.lone_enode import (
    NO_NAME_SERVER,
    append_batches,
    open_single_enode,
    stored_batches,
    topic,
)
from ortoo.verification.servers.processes import RoleProcess

TOPIC = 7
BATCH = encode([b"m" * 200] * 10, now_ms=1)


@pytest.fixture
async def enode(tmp_path: Path) -> AsyncIterator[RoleProcess]:
    """A process that is not started yet; its store already has one topic."""
    process = RoleProcess("enode", tmp_path / "enode", {"NAMESRV_ADDRESS": NO_NAME_SERVER, "STORE_HEADROOM_BYTES": 0})
    async with open_single_enode(process.data, topic(TOPIC)):
        pass
    yield process
    await process.kill()


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("cuts", [2, pytest.param(50, marks=[pytest.mark.crash, pytest.mark.timeout(900)])])
async def test_torn_tail_is_cut_and_written_on(enode: RoleProcess, tmp_path: Path, cuts: int, idle: bool) -> None:
    """E-216: killed, with a random cut in the last segment. Batches before the cut are kept, offsets stay dense.

    If the store was idle before, it knows that the truncated bytes were durable, and reports them as damage.
    """
    randomness = Randomness(cuts)
    await enode.start()
    await append_batches(enode.address, TOPIC, BATCH, 30)
    while idle and not is_known_durable(enode):
        await grpcurl.call(enode.address, "ortoo.v1.EnodeService/DescribeStore", {})
    await enode.kill()
    for number in range(cuts):
        torn = RoleProcess("enode", tmp_path / f"torn-{number}", {**enode.environ, "DATA_DIR": tmp_path / f"{number}"})
        shutil.copytree(enode.data, tmp_path / f"{number}")
        kept = cut(last_segment(tmp_path / f"{number}"), randomness)
        await torn.start()
        if kept or not await is_unknown(torn.address):  # else the cut removed the topic's own record as well
            batches = await stored_batches(torn.address, TOPIC)
            assert [b.first_offset for b in batches] == [10 * n for n in range(kept)]
            assert {b.batch.records for b in batches} <= {BATCH.records}
            assert await append_batches(torn.address, TOPIC, BATCH, 3) == [10 * n for n in range(kept, kept + 3)]
            await torn.restart()
            if idle:
                described = await grpcurl.call(torn.address, "ortoo.v1.EnodeService/DescribeStore", {})
                assert "the file ends at" in described.stdout
            assert len(await stored_batches(torn.address, TOPIC)) == kept + 3
        await torn.kill()


def cut(segment: Path, randomness: Randomness) -> int:
    """Truncate a segment at a random byte of its frames; return the number of whole batches before that."""
    frames = segment.read_bytes().rstrip(b"\0")
    at = randomness.below(len(frames))
    with segment.open("r+b") as file:
        file.truncate(at)
    return frames[:at].count(BATCH.records)


def is_known_durable(enode: RoleProcess) -> bool:
    """Whether the file beside the log records all the batches as durable."""
    file = next(enode.data.rglob("durable"), None)
    return file is not None and decode_slots(file.read_bytes()) > 30 * len(BATCH.records)


def last_segment(folder: Path) -> Path:
    """The segment file that was written last."""
    return max(folder.rglob(f"*{SUFFIX}"), key=lambda p: p.name)


async def is_unknown(address: str) -> bool:
    """Whether the topic is no longer known."""
    request = {"topicId": str(TOPIC)}
    answer = await grpcurl.call(address, "ortoo.v1.EnodeService/DescribeQueues", request)
    return answer.exit_code != 0
