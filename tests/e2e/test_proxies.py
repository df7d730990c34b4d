"""The environment's proxy variables, which clients obey and roles do not."""

from pathlib import Path

from ortoo.client import connect
from ortoo.verification.servers.ports import free_address
from ortoo.verification.servers.processes import process_cluster


async def test_roles_find_each_other_beside_a_proxy_in_their_environment(tmp_path: Path) -> None:
    """A machine's http_proxy points at a proxy that knows no inner address; here at a port that refuses."""
    proxy = f"http://{free_address()}"
    environment = {"http_proxy": proxy, "https_proxy": proxy, "grpc_proxy": proxy, "no_proxy": "", "no_grpc_proxy": ""}
    async with process_cluster(tmp_path, environ_more=environment) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t")
        async with mq.producer("t") as producer:
            assert (await producer.send(b"hello")).offset == 0
