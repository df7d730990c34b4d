"""Decisions of the parent of workers: their settings, their ports, and one text of all their metrics."""

import dataclasses
import socket

import pytest

from ortoo.common.errors import Conflict, Invalid
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.process.settings import LoadedSettings
from ortoo.snode.settings import SnodeSettings
from ortoo.snode.workers.endpoint import merge_metrics
from ortoo.snode.workers.ports import reserve_ports
from ortoo.snode.workers.worker import Worker
from ortoo.verification.servers.ports import free_address_of_two

SNODE = SnodeSettings(name="a", listen_address="127.0.0.1:0", workers=4, redis_url="redis://cache:6379/0")
WORKER = Worker(3, "0.0.0.0:8081", "0.0.0.0:8443", "0.0.0.0:8086", 7)


def test_a_worker_has_a_name_and_a_part_of_the_memory() -> None:
    """The ports are the parent's, only it reads metrics, the budget is divided; each setting has its source."""
    origins = {"name": "file", "workers": "file", "log_level": "default"}
    found = WORKER.worker_settings(LoadedSettings(SNODE, origins), lambda: 8 << 30)
    assert found.settings.name == "a.3"
    assert found.settings.memory_budget_bytes == 1 << 30
    assert found.settings.listen_address == "0.0.0.0:8081"
    assert found.settings.metrics_address == ""
    assert found.settings.tls_cluster_listen_address == ""
    assert found.origins["name"] == found.origins["memory_budget_bytes"] == "workers"
    assert found.origins["log_level"] == "default"
    given = dataclasses.replace(SNODE, memory_budget_bytes=1000, tls_cluster_listen_address="0.0.0.0:8083")
    share = WORKER.worker_settings(LoadedSettings(given, origins), lambda: 8 << 30).settings
    assert share.memory_budget_bytes == 250
    assert share.tls_cluster_listen_address == "0.0.0.0:8086"


def test_a_worker_is_told_by_its_environment() -> None:
    """The worker reads the parent's values; without them a process is not a worker."""
    assert Worker.from_environ(WORKER.to_environ()) == WORKER
    assert Worker.from_environ({"ORTOO_SNODE_NAME": "a"}) is None


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"redis_url": ""}, "redis_url"),
        ({"name": "n" * 62}, "name"),
        ({"worker_port": 65_533}, "worker_port"),
    ],
)
def test_workers_that_cannot_work_are_refused(changed: dict[str, str | int], field: str) -> None:
    """Without a shared membership groups would be split; names and ports have limits."""
    SNODE.check()
    with pytest.raises(Invalid) as refused:
        dataclasses.replace(SNODE, **changed).check()  # type: ignore[arg-type]
    assert refused.value.field == field


async def test_kept_ports_are_for_those_who_share_them() -> None:
    """While the parent holds a port, no exclusive bind succeeds, no second parent gets it, and its workers share it."""
    with reserve_ports(SNODE) as kept:
        ports, own = kept[0][0], [worker.own_address for worker, _ in kept]
        assert len({ports.listen_address, *own}) == 5
        assert {worker.listen_address for worker, _ in kept} == {ports.listen_address}
        assert ports.tls_listen_address == ""
        second = dataclasses.replace(SNODE, listen_address=ports.listen_address)
        for _ in range(2):
            with pytest.raises(Conflict, match="the port is taken"), reserve_ports(second):
                pass
            with pytest.raises(Conflict, match="the port is taken"):
                await GrpcServer(ports.listen_address, []).__aenter__()
            async with (
                GrpcServer(ports.listen_address, [], shares_ports=True, own_address=own[0]) as one,
                GrpcServer(ports.listen_address, [], shares_ports=True, own_address=own[1]) as other,
            ):
                assert one.address == other.address == ports.listen_address
                assert one.own_address != other.own_address
    with reserve_ports(second) as again:
        assert again[0][0].listen_address == ports.listen_address


def test_workers_ports_follow_one_another() -> None:
    """From `worker_port` on, or from the port of the cluster's TLS; the error for a taken one names its setting."""
    port = int(free_address_of_two().rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        for setting in ({"worker_port": port}, {"tls_cluster_listen_address": f"127.0.0.1:{port}"}):
            with pytest.raises(Conflict) as refused, reserve_ports(dataclasses.replace(SNODE, **setting)):
                pass
            assert refused.value.field == next(iter(setting))
    with reserve_ports(dataclasses.replace(SNODE, workers=2, worker_port=port)) as kept:
        assert [worker.own_address for worker, _ in kept] == [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]


def test_metrics_of_workers_are_one_text() -> None:
    """Each family once, with one head, and each series once, with its worker. Braces and spaces in labels stay."""
    first = (
        '# HELP a_total Of a.\n# TYPE a_total counter\na_total{topic="x {y} z"} 1\n# HELP b B.\n# TYPE b gauge\nb 2\n'
    )
    second = '# HELP b B.\n# TYPE b gauge\nb 3\n# HELP a_total Of a.\n# TYPE a_total counter\na_total{topic="q"} 4\n'
    assert "".join(merge_metrics({"1": first, "2": second})) == (
        "# HELP a_total Of a.\n# TYPE a_total counter\n"
        'a_total{worker="1",topic="x {y} z"} 1\na_total{worker="2",topic="q"} 4\n'
        '# HELP b B.\n# TYPE b gauge\nb{worker="1"} 2\nb{worker="2"} 3\n'
    )
