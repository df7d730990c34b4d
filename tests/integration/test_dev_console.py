"""`ortoo dev` serves the console at its port, or at a free one if another program has that port."""

import asyncio
import urllib.request
from pathlib import Path

import pytest

from ortoo.cli.dev.cluster import open_dev_cluster, open_dev_console
from ortoo.client import connect
from ortoo.common.grpc.transport import SocketTransport
from ortoo.verification.servers.ports import free_address


async def page_of(address: str) -> str:
    """The text of the first page."""

    def load() -> str:
        with urllib.request.urlopen(f"http://{address}/", timeout=60) as answer:
            text: str = answer.read().decode()
            return text

    return await asyncio.to_thread(load)


async def test_two_clusters_have_a_console_each(tmp_path: Path) -> None:
    """The second console takes a free port, and each shows its own cluster."""
    chosen = free_address()
    async with (
        open_dev_cluster(tmp_path, "127.0.0.1:0") as snode,
        open_dev_console(chosen, snode.address) as first,
        open_dev_console(chosen, snode.address) as second,
    ):
        assert first.address == chosen
        assert second.address != chosen
        for console in (first, second):
            while "No problem found" not in (text := await page_of(console.address)):
                pass  # on a busy machine the processes find each other later
            assert snode.address in text


async def test_settings_of_processes_do_not_change_the_transport(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The roles in its process serve by libnghttp2, whatever the environment sets for other processes."""
    for role in ("NAMESRV", "ENODE", "SNODE"):
        monkeypatch.setenv(f"ORTOO_{role}_TRANSPORT", "grpc")
    monkeypatch.setattr(SocketTransport, "server", lambda *_: pytest.fail("a server by grpc.aio"))
    async with open_dev_cluster(tmp_path, "127.0.0.1:0") as snode, connect(snode.address) as mq:
        assert await mq.admin.list_topics() == []
