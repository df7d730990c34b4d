"""The calls that keep a cluster alive have queues of their own on a name server, which a flood cannot fill."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.common.grpc.channels import Channels
from ortoo.v1 import namesrv_pb2, namesrv_pb2_grpc, topic_pb2
from ortoo.verification.servers.processes import RoleProcess
from tests.hostile.floods import Target, silent_calls
from tests.hostile.strangers import METHODS

FLOODS = 4


@pytest.mark.timeout(300)
async def test_snodes_stay_registered_during_a_flood(tmp_path: Path) -> None:
    """G17: no registration is refused while thousands of calls of another method wait for their requests.

    Otherwise leases would end, and clients would find no queue.
    """
    name_server = RoleProcess("namesrv", tmp_path)
    try:
        await name_server.start()
        target = Target(name_server.address, METHODS["namesrv"])

        async def flood() -> None:
            for _ in range(FLOODS):
                for stranger in await silent_calls(target, 0.3):
                    await stranger.close()

        async with Channels() as channels, asyncio.TaskGroup() as group:
            stub: Any = namesrv_pb2_grpc.NameServiceStub(channels.channel_to(name_server.address))
            flooding, refused = group.create_task(flood()), []
            while not flooding.done():
                snode = topic_pb2.Snode(name="snode-0", address="127.0.0.1:1")
                try:
                    await stub.RegisterSnode(namesrv_pb2.RegisterSnodeRequest(snode=snode, incarnation="1"))
                except grpc.aio.AioRpcError as error:
                    refused.append(error)
        assert refused == []
    finally:
        await name_server.kill()
