"""What operators ask when something is wrong: of processes, of a group that does not consume, of single messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ortoo.client.core.connection import Connection
from ortoo.client.core.place import Queue
from ortoo.client.core.wire import EnumNames, queue_of, wire_queue
from ortoo.common.grpc.fields import read
from ortoo.common.process.settings import Setting, SettingChange
from ortoo.v1 import delivery_pb2, findings_pb2, settings_pb2
from ortoo.v1.delivery_pb2_grpc import DeliveryServiceStub
from ortoo.v1.findings_pb2_grpc import FindingsServiceStub
from ortoo.v1.settings_pb2_grpc import SettingsServiceStub

_STATES = EnumNames("state", delivery_pb2.DeliveryState)
MARGIN_S = 1.0
"""What the snode may take beside the processes that it asks."""


@dataclass(frozen=True, slots=True)
class ClusterFinding:
    """One thing that is wrong, as a process of the cluster says it; its name never changes."""

    name: str
    seen: str
    consequence: str
    cure: str
    """What to do, with the command."""
    serious: bool
    """Whether something does not work because of it; otherwise it soon may not, or somebody should look."""
    process: str = ""
    """Who says so, such as `enode enode-0`; empty when it was found by comparing."""


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """What one process says about its settings."""

    role: str
    name: str
    address: str = ""
    """Where it was asked; empty = it is the snode that answered."""
    settings: tuple[Setting, ...] = ()
    changes: tuple[SettingChange, ...] = ()
    """The oldest first."""
    error: str = ""
    """Why it did not answer, or did not take a change; empty = it did."""


@dataclass(frozen=True, slots=True)
class MessageDelivery:
    """What became of one message for a group."""

    queue: Queue
    offset: int
    state: str
    """waiting, leased, delayed, acknowledged, parked; outstanding = of a member that commits offsets."""
    attempt: int
    """How often it was delivered."""
    until_ms: int
    """When its lease ends, or from when on it comes again; 0 = neither."""
    consumer: str
    """Who has it, or gave it back last; empty = not known any more."""
    error: str
    """What that consumer said; of a parked one why it was parked."""


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What became of messages, by queue and offset."""

    messages: tuple[MessageDelivery, ...]
    enodes_away: tuple[str, ...]
    """Those could not be asked."""
    more: bool = False
    """There are more than fit into one answer: ask again from behind the last one."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is not consumed; its name never changes."""

    name: str
    seen: str
    cure: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a group does not consume, what counts most first."""

    reasons: tuple[Reason, ...]
    delivery: MessageDelivery | None = None
    """Of the message that was asked about."""


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

    async def settings(self, role: str, process: str = "") -> list[ProcessSettings]:
        """What is in force in each process of a role, `namesrv`, `enode` or `snode`, or in one of them.

        Errors: Invalid, Forbidden; NotFound (process).
        """
        request = settings_pb2.ListSettingsRequest(role=role, process=process)
        answer = await self._connection.call(SettingsServiceStub, "ListSettings", request)
        return [read(ProcessSettings, one) for one in answer.processes]

    async def change_settings(
        self,
        role: str,
        values: Mapping[str, str],
        *,
        reset: Sequence[str] = (),
        process: str = "",
        check_only: bool = False,
    ) -> list[ProcessSettings]:
        """Change settings of running processes until their next start; `reset` goes back to file and environment.

        Values are written as in the environment. Either every process takes the change or none; with `check_only` none
        does. Errors: Invalid, naming the setting; Forbidden, NotFound (process), Unavailable.
        """
        request = settings_pb2.UpdateSettingsRequest(
            role=role, process=process, values=values, reset=reset, check_only=check_only
        )
        answer = await self._connection.call(SettingsServiceStub, "UpdateSettings", request)
        return [read(ProcessSettings, one) for one in answer.processes]

    async def setting_changes(self, role: str, process: str = "") -> list[ProcessSettings]:
        """What was changed in each process of a role since it started. Errors: as of `settings`."""
        request = settings_pb2.ListSettingChangesRequest(role=role, process=process)
        answer = await self._connection.call(SettingsServiceStub, "ListSettingChanges", request)
        return [read(ProcessSettings, one) for one in answer.processes]

    async def deliveries(
        self,
        group: str,
        topic: str,
        *,
        queue: Queue | None = None,
        from_offset: int | None = None,
        to_offset: int = 0,
        limit: int = 100,
    ) -> Deliveries:
        """What became of messages of a topic for a group, or of one queue of it, by queue and offset.

        Without `from_offset` of those that it is not done with; `to_offset` is exclusive, 0 = the end; at most `limit`
        of each queue, and as many as fit into one answer. Errors: NotFound (topic), Invalid.
        """
        request = delivery_pb2.ListDeliveriesRequest(
            group=group,
            topic=topic,
            queue=None if queue is None else wire_queue(queue),
            from_offset=from_offset,
            to_offset=to_offset,
            limit=limit,
        )
        answer = await self._connection.call(DeliveryServiceStub, "ListDeliveries", request)
        return Deliveries(tuple(map(_delivery, answer.deliveries)), tuple(answer.enodes_away), answer.more)

    async def explain(self, group: str, topic: str, message_id: str = "") -> Explanation:
        """Why a group does not consume a topic, or one message of it. Errors: NotFound (topic or message), Invalid."""
        request = delivery_pb2.ExplainConsumptionRequest(group=group, topic=topic, message_id=message_id)
        answer = await self._connection.call(DeliveryServiceStub, "ExplainConsumption", request)
        row = _delivery(answer.delivery) if answer.HasField("delivery") else None
        return Explanation(tuple(read(Reason, one) for one in answer.reasons), row)


def _delivery(row: delivery_pb2.MessageDelivery) -> MessageDelivery:
    return read(MessageDelivery, row, queue=queue_of(row.queue), state=_STATES.name(row.state))
