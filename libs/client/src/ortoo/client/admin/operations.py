"""What operators ask when something is wrong: what the processes know themselves."""

from ortoo.client.admin.descriptions import ClusterFinding
from ortoo.client.core.connection import Connection
from ortoo.common.grpc.fields import read
from ortoo.v1 import findings_pb2
from ortoo.v1.findings_pb2_grpc import FindingsServiceStub

MARGIN_S = 1.0
"""What the snode may take beside the processes that it asks."""


class Operations:
    """Questions to a cluster that does not do what it should. Reached as `Client.admin.operations`."""

    def __init__(self, connection: Connection) -> None:
        """`Client.admin` is the way in."""
        self._connection = connection

    async def findings(self, *, timeout_s: float = 2.0) -> list[ClusterFinding]:
        """What is wrong in the cluster, as its processes know it themselves; the serious ones first.

        Each of them may take `timeout_s` to answer. Errors: Forbidden; Unsupported when the snode is older.
        """
        request = findings_pb2.ListFindingsRequest(timeout_ms=int(timeout_s * 1000))
        answer = await self._connection.call(
            FindingsServiceStub, "ListFindings", request, timeout_s=timeout_s + MARGIN_S
        )
        return [read(ClusterFinding, one) for one in answer.findings]
