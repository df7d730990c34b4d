"""A name server in this process with its database, for tests that need nothing else."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ortoo.common.grpc.channels import Channels
from ortoo.namesrv.app import open_namesrv
from ortoo.namesrv.settings import NamesrvSettings
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.verification.servers.ports import free_address


@contextlib.asynccontextmanager
async def name_server(database_url: str, folder: Path, **settings: Any) -> AsyncIterator[NameServiceStub]:
    """A name server in this process with its database."""
    chosen = NamesrvSettings(listen_address=free_address(), data_dir=folder, database_url=database_url, **settings)
    async with open_namesrv(chosen) as running, Channels() as channels:
        yield NameServiceStub(channels.channel_to(running.address))
