"""`ortoo dev` by TLS: its port, and the clients that trust its certificate."""

import socket
from pathlib import Path

from ortoo.cli.dev.cluster import next_tls_address, open_dev_cluster
from ortoo.client import Message, connect


async def test_our_own_client_believes_the_certificate_that_was_made(tmp_path: Path) -> None:
    """It is made at the first start, for this machine, kept over restarts; only its owner can read the key.

    When `ortoo dev` is ready its enode has registered, so that the first topic can be created at once.
    """
    made: list[bytes] = []
    for _ in range(2):
        async with open_dev_cluster(tmp_path, "127.0.0.1:0", "127.0.0.1:0") as snode:
            port = snode.tls_address.rpartition(":")[2]
            for address in (snode.tls_address, f"localhost:{port}"):
                async with connect(address, tls_ca_file=str(tmp_path / "tls/certificate.pem")) as mq:
                    await mq.admin.ensure_topic("t")
                    async with mq.producer("t") as producer:
                        await producer.send(Message(b"hello"))
        made.append((tmp_path / "tls/certificate.pem").read_bytes())
    assert made[0] == made[1]
    assert (tmp_path / "tls/key.pem").stat().st_mode & 0o077 == 0


def test_tls_is_on_the_next_port_unless_that_is_taken() -> None:
    """A taken port does not prevent the start."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert next_tls_address(f"127.0.0.1:{port - 1}") == "127.0.0.1:0"
    assert next_tls_address(f"127.0.0.1:{port - 1}") == f"127.0.0.1:{port}"
    assert next_tls_address("127.0.0.1:0") == "127.0.0.1:0"
    assert next_tls_address("127.0.0.1:65535") == "127.0.0.1:0"
    assert next_tls_address("nowhere") == ""
