"""With the chart's settings of pods, real processes find and serve each other, also by mutual TLS."""

import asyncio
import re
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ortoo.client import connect
from ortoo.common.grpc.server import LIVE
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.processes import RoleProcess
from tests.deploy.test_chart import containers, objects, rendered
from tests.integration.certificates import NAME, Authority
from tests.integration.health import until_ready

ROLES = ("namesrv", "enode", "snode")
MOUNT = "/etc/ortoo/cluster-tls"


SEPARATE = tuple(f"clusterTls.existingSecrets.{role}=of-{role}" for role in ROLES)
SHARED = (
    "clusterTls.existingSecret.name=mine",
    *(f"clusterTls.roleNames.{role}={NAME}" for role in ("enode", "snode")),
)


@pytest.mark.parametrize("options", [(), SEPARATE, SHARED], ids=["default", "certificates", "one certificate"])
async def test_rendered_pods_serve_each_other_and_answer_their_probes(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Settings and Secrets are the chart's; only hosts, ports and folders are this machine's."""
    found = containers(objects(rendered("helm", *(word for one in options for word in ("--set", one)))))
    authority = await Authority.make(tmp_path / "authority")
    for role in ROLES:
        made = await (authority.sign("all", NAME) if options == SHARED else authority.sign(role))
        (folder := tmp_path / f"secret-{role}").mkdir()
        (folder / "ca.crt").write_bytes(authority.ca_file.read_bytes())
        (folder / "tls.crt").write_bytes(made.certificate_file.read_bytes())
        (folder / "tls.key").write_bytes(made.key_file.read_bytes())
    named = (8071, 8073, 8081, 8083, 8091, 8093)
    ports = dict(zip(map(str, named), map(str, free_ports(len(named))), strict=True))
    processes: list[RoleProcess] = []
    probed: list[tuple[str, str]] = []
    for role in ROLES:
        ((pod, container),) = ((pod, one) for name, pod, one in found if name == f"r-ortoo-{role}")
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        if options:
            assert mounts["cluster-tls"] == MOUNT
            secret = {"secretName": "mine" if options == SHARED else f"of-{role}", "defaultMode": 0o400}
            assert {"name": "cluster-tls", "secret": secret} in pod["volumes"]
        prefix, environ = f"ORTOO_{role.upper()}_", {}
        for variable in container["env"]:
            if variable["name"].startswith(prefix) and "value" in variable:
                text = (
                    variable["value"].replace(MOUNT, str(tmp_path / f"secret-{role}")).replace("0.0.0.0", "127.0.0.1")
                )
                text = re.sub(r"[^;:]*r-ortoo-[a-z0-9.-]*|\$\(POD_IP\)", "127.0.0.1", text)
                environ[variable["name"].removeprefix(prefix)] = re.sub(
                    r":(80[789]\d)\b", lambda match: f":{ports[match[1]]}", text
                )
        environ |= {"NAME": f"{role}-0", "METRICS_ADDRESS": "", "DRAIN_DELAY_S": "0"}
        environ |= {"DATA_DIR": str(tmp_path / role)} if role != "snode" else {}
        processes.append(RoleProcess(role, tmp_path / f"{role}-0", environ))
        asked = [container[f"{probe}Probe"]["grpc"] for probe in ("startup", "liveness", "readiness")]
        probed += [(ports[str(one["port"])], one.get("service", "")) for one in asked]
    try:
        for process in processes:
            await process.start()
        for port, service in probed:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                if service != LIVE:
                    await until_ready(channel, service)
                    continue
                live = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=LIVE))
                assert live.status == health_pb2.HealthCheckResponse.SERVING
        async with connect(f"127.0.0.1:{ports['8081']}") as mq, asyncio.timeout(60):
            [enode] = (await mq.admin.describe_cluster()).enodes
            assert (enode.alive, enode.address) == (True, f"127.0.0.1:{ports['8093' if options else '8091']}")
            await mq.admin.create_topic("t")
            async with mq.producer("t") as producer:
                assert (await producer.send(b"x")).offset == 0
    finally:
        for process in reversed(processes):
            await process.kill()


@pytest.mark.parametrize("role", ROLES)
def test_without_the_secret_nothing_of_it_is_there(role: str) -> None:
    """The default chart uses no TLS."""
    ((container,),) = ([one for name, _, one in containers(objects(rendered("helm"))) if name == f"r-ortoo-{role}"],)
    assert not [one for one in container["env"] if "TLS_CLUSTER" in one["name"]]
