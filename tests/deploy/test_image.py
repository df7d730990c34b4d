"""The image is really built, and all three roles run from it. It takes two minutes: `make image-check`."""

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ortoo.client import ConsumerSettings, connect
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers import grpcurl
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.scrape import get
from tests.deploy.containers import Containers, missing_tools
from tests.repo.tree import ROOT

pytestmark = [
    pytest.mark.image,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing_tools()), reason=f"NO {', '.join(missing_tools())}; install what is named"),
]
IMAGE = "localhost/ortoo:check"
ROLES = ("namesrv", "enode", "snode")


@pytest.fixture(scope="module")
def containers() -> Iterator[Containers]:
    """The built image; base and layers are kept for the next run."""
    containers = Containers(Path(tempfile.gettempdir()) / "ortoo-containers")
    containers.make_base()
    subprocess.run(["make", "wheels"], cwd=ROOT, check=True, capture_output=True)
    options = {"PIP_OPTIONS": "--no-index --find-links /src/build/wheels"}
    containers.build(ROOT, ROOT / "deploy/docker/Dockerfile", IMAGE, options)
    yield containers
    containers.podman("rm", "--force", "--time", "0", *ROLES, must=False)
    containers.podman("volume", "rm", "--force", *(f"data-{role}" for role in ROLES), must=False)


def test_image_is_small_and_runs_as_nobody_special(containers: Containers) -> None:
    """No compiler, no pip, no sources; a numeric user, so that Kubernetes can check it."""
    config = containers.inspect(IMAGE)
    assert config["User"] == "10001:10001"
    listed = containers.podman(
        "run", "--rm", "--network", "none", IMAGE, "sh", "-c", "ls /opt/ortoo/bin && test ! -e /src"
    )
    assert "ortoo-enode" in listed.out
    assert "pip" not in listed.out.split()


async def until_ready(containers: Containers, role: str, address: str) -> None:
    """Wait until a role is ready."""
    async with asyncio.timeout(60):
        while True:
            try:
                if (await get(address, "/readyz")).status == 200:
                    return
            except OSError:
                running = containers.podman("ps", "--filter", f"name={role}", "--format", "{{.Names}}").out
                assert role in running, containers.podman("logs", role, must=False).out
            await SystemClock().sleep(0.2)


async def test_three_roles_run_from_one_image(containers: Containers) -> None:
    """With a read-only root, no permissions and a memory limit: messages flow, SIGTERM drains, and data persist."""
    ports = dict(zip(("namesrv", "enode", "snode", "m-namesrv", "m-enode", "m-snode"), free_ports(6), strict=True))
    namesrv = f"127.0.0.1:{ports['namesrv']}"

    def start(role: str) -> None:
        prefix = f"ORTOO_{role.upper()}_"
        settings = {"LISTEN_ADDRESS": f"127.0.0.1:{ports[role]}", "METRICS_ADDRESS": f"127.0.0.1:{ports['m-' + role]}"}
        if role != "namesrv":
            settings["NAMESRV_ADDRESS"] = namesrv
        if role == "enode":
            settings |= {"STORE_SEGMENT_BYTES": str(4 << 20), "STORE_HEADROOM_BYTES": "0"}
        environ = [option for name, value in settings.items() for option in ("-e", f"{prefix}{name}={value}")]
        containers.podman(
            *("run", "-d", "--name", role, "--network", "host", "--read-only", "--cap-drop", "all"),
            *("--memory", "512m", "-v", f"data-{role}:/var/lib/ortoo", *environ, IMAGE, f"ortoo-{role}"),
        )

    for role in ROLES:
        start(role)
    for role in ROLES:
        await until_ready(containers, role, f"127.0.0.1:{ports['m-' + role]}")
    address = f"127.0.0.1:{ports['snode']}"
    created = await grpcurl.call(address, "ortoo.v1.AdminService/CreateTopic", {"name": "t"})
    assert created.exit_code == 0, created.stderr
    async with connect(address) as mq:
        async with mq.producer("t") as producer:
            await producer.send(b"through a container")
        async with mq.consumer("g", "t", ConsumerSettings(from_beginning=True)) as consumer:
            async for message in consumer:
                assert message.body == b"through a container"
                message.ack()
                break
    refused = containers.podman("exec", "enode", "touch", "/opt/ortoo/x", must=False)
    assert (refused.exit_code != 0, "Read-only file system" in refused.out) == (True, True)
    for role in reversed(ROLES):
        containers.podman("stop", "--time", "20", role)
        state = containers.podman("inspect", "--format", "{{.State.ExitCode}}", role).out.strip()
        assert state == "0", containers.podman("logs", role, must=False).out
        assert "shutdown_complete" in containers.podman("logs", role, must=False).out
    for role in ROLES:
        containers.podman("start", role)
    for role in ROLES:
        await until_ready(containers, role, f"127.0.0.1:{ports['m-' + role]}")
    async with connect(address) as mq:
        described = await mq.admin.describe_topic("t")
        assert sum(queue.end_offset for queue in described.queues) == 1
