"""The enode as a process: accepted settings, refused starts, and its end."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2

from ortoo.common.process.service import EXIT_INVALID_SETTINGS, EXIT_NOT_STARTED
from ortoo.common.records.batch import encode
from ortoo.enode.log.frame import HEADER_BYTES, decode_header
from ortoo.verification.forks.spawning import outcome
from ortoo.verification.servers import grpcurl
from ortoo.verification.servers.lone_enode import (
    NO_NAME_SERVER,
    append_batches,
    open_single_enode,
    stored_batches,
    topic,
)
from ortoo.verification.servers.processes import DidNotStart, RoleProcess

TOPIC = 7
BATCH = encode([b"m" * 200] * 10, now_ms=1)


@pytest.fixture
async def enode(tmp_path: Path) -> AsyncIterator[RoleProcess]:
    """A process that is not started yet; its store knows one topic already."""
    process = RoleProcess("enode", tmp_path / "enode", {"NAMESRV_ADDRESS": NO_NAME_SERVER, "STORE_HEADROOM_BYTES": 0})
    async with open_single_enode(process.data, topic(TOPIC)):
        pass
    yield process
    await process.kill()


async def test_kill_and_start_keeps_what_was_acknowledged(enode: RoleProcess) -> None:
    """Three times kill -9 after acknowledged appends: every message is there, offsets stay dense (G1, G3)."""
    for round_number in range(3):
        await enode.start()
        offsets = await append_batches(enode.address, TOPIC, BATCH, 20)
        assert offsets == [10 * n for n in range(20 * round_number, 20 * round_number + 20)]
        await enode.kill()
    await enode.start()
    batches = await stored_batches(enode.address, TOPIC)
    assert [b.first_offset for b in batches] == [10 * n for n in range(60)]
    assert {b.batch.records for b in batches} == {BATCH.records}


async def test_term_ends_it_cleanly(enode: RoleProcess) -> None:
    """SIGTERM drains it and the exit code is 0; the next start finds a clean store."""
    await enode.start()
    await append_batches(enode.address, TOPIC, BATCH, 3)
    assert await enode.stop() == 0
    await enode.start()
    assert len(await stored_batches(enode.address, TOPIC)) == 3


async def test_reflection_and_health_are_on(enode: RoleProcess) -> None:
    """Grpcurl alone finds the service and its health: alive, though no name server knows it."""
    await enode.start()
    listed = await grpcurl.grpcurl("-plaintext", enode.address, "list")
    assert "ortoo.v1.EnodeService" in listed.stdout.split()
    health = await grpcurl.call(enode.address, "grpc.health.v1.Health/Check", {"service": "ortoo.v1.EnodeService"})
    assert health.values() == [{"status": health_pb2.HealthCheckResponse.ServingStatus.Name(2)}]
    live = await grpcurl.call(enode.address, "grpc.health.v1.Health/Check", {"service": "live"})
    assert live.values() == [{"status": health_pb2.HealthCheckResponse.ServingStatus.Name(1)}]
    described = await grpcurl.call(enode.address, "ortoo.v1.EnodeService/DescribeStore")
    assert described.values()[0]["writable"] is True


async def refused(process: RoleProcess, exit_code: int = EXIT_INVALID_SETTINGS) -> str:
    """Start a process that must refuse to start; return its output."""
    with pytest.raises(DidNotStart) as caught:
        await process.start()
    assert caught.value.exit_code == exit_code
    return caught.value.log


async def test_store_in_use_is_refused(enode: RoleProcess, tmp_path: Path) -> None:
    """A second process on the same folder reports that, ends with 253 and harms nothing (E-010)."""
    await enode.start()
    await append_batches(enode.address, TOPIC, BATCH, 1)
    second = RoleProcess("enode", tmp_path / "second", {**enode.environ})
    assert "in use by another process" in await refused(second)
    assert await append_batches(enode.address, TOPIC, BATCH, 1) == [10]


async def test_store_of_another_enode_is_refused(enode: RoleProcess) -> None:
    """A store belongs to the enode that created it."""
    enode.environ["NAME"] = "enode-9"
    assert "belongs to enode 'enode-0'" in await refused(enode)
    enode.environ |= {"NAME": "enode-0", "CLUSTER": "other"}
    assert "of cluster 'default'" in await refused(enode)


async def test_a_store_of_a_newer_version_is_refused(enode: RoleProcess) -> None:
    """Its format is unknown here: the process ends with 253, names the remedy, and changes nothing."""
    await enode.start()
    await append_batches(enode.address, TOPIC, BATCH, 3)
    await enode.kill()
    last = max(enode.data.glob("*.seg"))
    data = bytearray(last.read_bytes())
    place = data.rindex(b"ORTO")
    header = decode_header(bytes(data[place : place + HEADER_BYTES]), int(last.stem) + place)
    data[place : place + HEADER_BYTES] = header._replace(version=header.version + 1).encoded()
    last.write_bytes(data)
    assert "upgrade it" in await refused(enode)
    assert last.read_bytes() == data


async def test_taken_port_is_refused(enode: RoleProcess, tmp_path: Path) -> None:
    """A second process on a taken port names the port and its own setting for it, also for the replication port."""
    await enode.start()
    second = RoleProcess("enode", tmp_path / "second", {"NAMESRV_ADDRESS": NO_NAME_SERVER})
    for setting in ("listen_address", "replica_listen_address"):
        second.environ[setting.upper()] = enode.address
        said = await refused(second, EXIT_NOT_STARTED)
        assert f"cannot listen on {enode.address}: the port is taken" in said
        assert f"choose another with {setting}," in said
        second.environ["LISTEN_ADDRESS"] = "127.0.0.1:0"


WRONG_SETTINGS: dict[str, dict[str, object]] = {
    "ORTOO_ENODE_NAM: unknown setting ORTOO_ENODE_NAM (environment); did you mean ORTOO_ENODE_NAME?": {"NAM": "x"},
    "expected sync or async": {"STORE_FLUSH_MODE": "default"},
    "ORTOO_ENODE_STORE_SEGMENT_BYTES is 'many'; expected int": {"STORE_SEGMENT_BYTES": "many"},
    "expected a multiple of 64": {"STORE_SEGMENT_BYTES": 5_000},
    "name: the process name 'a b' has ' '": {"NAME": "a b"},
    "namesrv_address: 'host'; expected host:port": {"NAMESRV_ADDRESS": "host"},
    "listen_address: 'x'; expected host:port": {"LISTEN_ADDRESS": "x"},
    "advertised_address: listening on 0.0.0.0:0, but snodes need an address": {"LISTEN_ADDRESS": "0.0.0.0:0"},
    "store.enode: is taken from name; set name instead": {"STORE_ENODE": "x"},
}


@pytest.mark.parametrize("reason", WRONG_SETTINGS)
async def test_wrong_setting_is_refused_by_name(tmp_path: Path, reason: str) -> None:
    """An invalid setting ends the process with 253 and one line that names it; no folder is created."""
    process = RoleProcess("enode", tmp_path / "enode", WRONG_SETTINGS[reason])
    said = await refused(process)
    assert reason in said
    assert len(said.splitlines()) == 1
    assert not process.data.exists()


async def output(*arguments: str) -> tuple[int, str, str]:
    """Run the enode's command line to its end; exit code, stdout and stderr."""
    return await outcome(sys.executable, "-m", "ortoo.enode", *arguments)


async def test_store_is_read_and_checked_without_the_server(enode: RoleProcess) -> None:
    """`inspect` prints the contents of a killed enode's folder, `repair` finds nothing wrong; both have a help text."""
    await enode.start()
    await append_batches(enode.address, TOPIC, BATCH, 3)
    await enode.kill()
    code, out, _ = await output("inspect", str(enode.data))
    found = [json.loads(line) for line in out.splitlines()]
    queue = next(line for line in found if line["type"] == "queue" and line["queue_id"] == 0)
    assert (code, queue["end_offset"]) == (0, "30")
    assert (await output("repair", str(enode.data)))[:2] == (0, "nothing is wrong\n")
    for tool in ("inspect", "repair"):
        code, out, _ = await output(tool, "-h")
        assert (code, "usage:" in out) == (0, True)
        code, _, error = await output(tool, str(enode.data / "nowhere"))
        assert code != 0
        assert "nowhere" in error
