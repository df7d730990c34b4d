"""The three roles in one process: name server and enode on ports of their own, the snode where clients expect it."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

from ortoo.cli.dev.members import open_members
from ortoo.cli.dev.store_link import StoreLinks
from ortoo.common.process.service import Running
from ortoo.enode.app import open_enode
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.settings import Settings as EnodeSettings
from ortoo.namesrv.app import open_namesrv
from ortoo.namesrv.settings import Settings as NamesrvSettings
from ortoo.snode.app import open_snode
from ortoo.snode.settings import Settings as SnodeSettings

ANY_PORT = "127.0.0.1:0"
STOP_GRACE_S = 1.0
SEGMENT_BYTES = 64 << 20


@contextlib.asynccontextmanager
async def open_dev_cluster(data_dir: Path, listen_address: str, members: int = 1) -> AsyncIterator[Running]:
    """Run a cluster with its data in `data_dir`; yields the snode. Several members are processes of their own.

    Errors: Conflict when folder or port is taken; Unavailable when a member does not start.
    """
    namesrv = NamesrvSettings(listen_address=ANY_PORT, data_dir=data_dir / "namesrv", stop_grace_s=STOP_GRACE_S)
    store = dataclasses.replace(StoreSettings(), segment_bytes=SEGMENT_BYTES)
    async with contextlib.AsyncExitStack() as roles:
        name_server = await roles.enter_async_context(open_namesrv(namesrv))
        snode = SnodeSettings(
            listen_address=listen_address, namesrv_address=name_server.address, stop_grace_s=STOP_GRACE_S
        )
        snode.check()
        if members > 1:
            await roles.enter_async_context(open_members(members, data_dir, name_server.address, SEGMENT_BYTES))
            yield await roles.enter_async_context(open_snode(snode))
            return
        enode = await roles.enter_async_context(
            open_enode(
                EnodeSettings(
                    listen_address=ANY_PORT,
                    namesrv_address=name_server.address,
                    data_dir=data_dir / "enode",
                    stop_grace_s=STOP_GRACE_S,
                    store=store,
                )
            )
        )
        yield await roles.enter_async_context(open_snode(snode, links=StoreLinks.of(enode)))
