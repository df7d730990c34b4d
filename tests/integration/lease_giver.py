"""Gives an enode its lease and nothing else: for tests of an enode whose topics are set by the test."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from ortoo.common.errors import Conflict
from ortoo.common.errors.status import status_of
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1.namesrv_pb2_grpc import NameServiceServicer, add_NameServiceServicer_to_server
from ortoo.verification.servers.listening import serve_servicer


class LeaseGiver(NameServiceServicer):
    """Gives leases while it is allowed to."""

    def __init__(self) -> None:
        self.refuses = False
        self.address = ""

    async def RegisterEnode(self, request: pb.RegisterEnodeRequest, context: Any) -> pb.RegisterEnodeResponse:
        """A lease of 300 ms, so that it is renewed often, or an error: the name is taken."""
        if self.refuses:
            await context.abort(status_of(error := Conflict("another one has this name")), str(error))
        return pb.RegisterEnodeResponse(lease_ms=300)


@contextlib.asynccontextmanager
async def lease_giver() -> AsyncIterator[LeaseGiver]:
    """Serve while the block is entered."""
    giver = LeaseGiver()
    async with serve_servicer(add_NameServiceServicer_to_server, giver) as giver.address:
        yield giver
