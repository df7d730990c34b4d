"""The operator's calls about exactly-once sinks, such as that of the Spark connector."""

from dataclasses import dataclass
from functools import partial

from ortoo.client.core.connection import Connection
from ortoo.common.grpc.messages import read
from ortoo.v1 import sink_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub


@dataclass(frozen=True, slots=True)
class SinkInfo:
    """The account of a sink in a topic: the query that writes to it, and the newest batch of that query."""

    topic: str
    sink_id: str
    """Empty if only older versions have written to it; `account` names it then."""
    query_id: str
    """The query or job. Empty as `sink_id`."""
    batch_id: int
    """The newest committed batch, from 0."""
    changed_at_ms: int
    """When that batch was committed, or when the sink was reset, milliseconds since 1970-01-01 UTC; 0 = unknown."""
    reset: bool
    """Whether it was reset: this query is refused, and another one may begin."""
    account: str
    """The group whose offset is the account. It can be given instead of the id."""
    enode: str
    """The enode that keeps the account."""


@dataclass(frozen=True, slots=True)
class ListedSinks:
    """Sinks, and the enodes that could not be reached, whose sinks are missing."""

    sinks: tuple[SinkInfo, ...]
    unreachable_enodes: tuple[str, ...] = ()


class SinkAdmin:
    """The operator's calls about exactly-once sinks. Available as `Client.admin.sinks`."""

    def __init__(self, connection: Connection) -> None:
        """Applications use `Client.admin.sinks`."""
        self._call = partial(connection.call, AdminServiceStub)

    async def list(self, topic: str = "", sink_id: str = "") -> ListedSinks:
        """The sinks that write to `topic` (empty = all topics), or only that with this id or account.

        Errors: NotFound (the topic), Unsupported by older servers.
        """
        request = sink_pb2.ListSinksRequest(topic=topic, sink_id=sink_id)
        return read(ListedSinks, await self._call("ListSinks", request))

    async def reset(self, topic: str, sink_id: str) -> SinkInfo:
        """Refuse the query of a sink from its next commit on, and allow another query. Returns the sink after that.

        No message is removed. Repeating the call has no effect. Errors: NotFound, Invalid, Conflict if another query
        took the sink meanwhile, Unavailable, Unsupported by older servers.
        """
        request = sink_pb2.ResetSinkRequest(topic=topic, sink_id=sink_id)
        return read(SinkInfo, (await self._call("ResetSink", request)).sink)
