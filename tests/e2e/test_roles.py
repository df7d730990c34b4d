"""The three roles as processes: any order of starting, wrong starts, freezing."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.client import ConsumerSettings, connect
from ortoo.common.process.background import Background
from ortoo.common.process.service import EXIT_INVALID_SETTINGS, EXIT_NOT_STARTED
from ortoo.verification.servers import grpcurl
from ortoo.verification.servers.processes import DidNotStart, ProcessCluster, RoleProcess, process_cluster

ORDERS = list(itertools.permutations(("namesrv", "enode-0", "snode-0")))


@pytest.fixture
async def prepared(tmp_path: Path) -> AsyncIterator[ProcessCluster]:
    """A cluster whose processes know their ports and have been stopped."""
    async with process_cluster(tmp_path) as cluster:
        for role in reversed(cluster.roles):
            assert await role.stop() == 0
        yield cluster


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: " ".join(order))
async def test_any_order_of_starting_ends_in_a_useful_cluster(prepared: ProcessCluster, order: tuple[str, ...]) -> None:
    """A role that starts first waits for the others without ending, and messages flow when all are there."""
    roles = {role.folder.name: role for role in prepared.roles}
    async with Background("starts") as background:
        starts = []
        for name in order:
            starts.append(background.spawn(name, roles[name].start()))
            await roles[name].wait_until_spawned()
        await asyncio.gather(*starts)
    await prepared.wait_until_alive()
    created = await grpcurl.call(prepared.address, "ortoo.v1.AdminService/CreateTopic", {"name": "t"})
    assert created.exit_code == 0, created.stderr
    async with connect(prepared.address) as mq, mq.producer("t") as producer:
        receipt = await producer.send(b"hello")
        assert receipt.offset == 0


@pytest.mark.parametrize("role", ["namesrv", "enode", "snode"])
@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("LISTEN_ADDRES", "x", "did you mean ORTOO_{ROLE}_LISTEN_ADDRESS?"),
        ("LISTEN_ADDRESS", "nowhere", "listen_address: 'nowhere'; expected host:port"),
        ("STOP_GRACE_S", "soon", "ORTOO_{ROLE}_STOP_GRACE_S is 'soon'; expected float"),
        ("NAME", "a b", "name: the process name 'a b' has ' '"),
        ("LOG_LEVEL", "loud", "log_level: 'loud'; expected debug, info, warning or error"),
    ],
)
async def test_wrong_setting_is_refused_by_name(
    tmp_path: Path, role: str, setting: str, value: str, reason: str
) -> None:
    """Every role refuses an invalid setting with 253 and one line that names the setting and the expected value."""
    with pytest.raises(DidNotStart) as caught:
        await RoleProcess(role, tmp_path / role, {setting: value}).start()
    assert caught.value.exit_code == EXIT_INVALID_SETTINGS
    assert reason.replace("{ROLE}", role.upper()) in caught.value.log
    assert len(caught.value.log.splitlines()) == 1


@pytest.mark.parametrize("role", ["namesrv", "enode", "snode"])
async def test_wrong_settings_file_is_refused_by_name(tmp_path: Path, role: str) -> None:
    """An unknown key is refused with the nearest known one; a value of a wrong type with the type."""
    for text, reason in (
        ('listen_adress = "x"', "unknown setting listen_adress (file); did you mean listen_address?"),
        ("name = 7", "name is 7; expected str"),
        ("name", "is not TOML"),
    ):
        file = tmp_path / "settings.toml"
        file.write_text(text)
        process = RoleProcess(role, tmp_path / role)
        process.arguments = ("-c", str(file))
        with pytest.raises(DidNotStart) as caught:
            await process.start()
        assert caught.value.exit_code == EXIT_INVALID_SETTINGS
        assert reason in caught.value.log


async def test_taken_port_is_refused_by_every_role(processes: ProcessCluster, tmp_path: Path) -> None:
    """No role shares its port with another process."""
    for role in processes.roles:
        environ = {name: value for name, value in role.environ.items() if name == "NAMESRV_ADDRESS"}
        second = RoleProcess(role.role, tmp_path / f"second-{role.role}", environ)
        second.address = role.address
        second.environ["NAME"] = f"second-{role.role}"
        with pytest.raises(DidNotStart) as caught:
            await second.start()
        assert caught.value.exit_code == EXIT_NOT_STARTED
        assert f"cannot listen on {role.address}: the port is taken" in caught.value.log
        assert role.alive


async def test_frozen_enode_costs_time_but_no_message(processes: ProcessCluster) -> None:
    """While an enode is frozen its senders wait or retry; after it resumes, every message is stored once (G4, G13)."""
    created = await grpcurl.call(processes.address, "ortoo.v1.AdminService/CreateTopic", {"name": "t"})
    assert created.exit_code == 0, created.stderr
    async with connect(processes.address) as mq, mq.producer("t") as producer:
        await producer.send(b"before")
        processes.enode.freeze()
        sendings = await producer.send_many([b"during %d" % n for n in range(100)])
        refused = await grpcurl.call(
            processes.address,
            "ortoo.v1.ProducerService/Publish",
            {"topic": "t", "messages": [{"body": "aGVsbG8="}]},
        )
        assert "enode-0" in refused.stderr
        processes.enode.thaw()
        async with asyncio.timeout(60):
            receipts = [await sending for sending in sendings]
    assert len({(r.queue, r.offset) for r in receipts}) == 100
    bodies = await everything(processes.address, 101)
    assert sorted(bodies - {b"hello"}) == sorted({b"before", *(b"during %d" % n for n in range(100))})


async def everything(address: str, count: int) -> set[bytes]:
    """At least `count` messages of the topic, each of which must be there once."""
    found: list[bytes] = []
    async with connect(address) as mq, mq.consumer("g", "t", ConsumerSettings(from_beginning=True)) as consumer:
        async with asyncio.timeout(60):
            async for batch in consumer.batches():
                found += batch.bodies()
                batch.ack()
                if len(set(found) - {b"hello"}) >= count:
                    break
    assert len(set(found)) == len(found)
    return set(found)
