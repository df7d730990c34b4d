"""Calls for diagnosis: settings of processes, a group that does not consume, the delivery of single messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ortoo.client.core.connection import Connection
from ortoo.client.core.queues import Queue
from ortoo.client.core.wire import EnumNames, queue_of, wire_queue
from ortoo.common.grpc.messages import read
from ortoo.common.process.settings import Setting, SettingChange
from ortoo.v1 import delivery_pb2, findings_pb2, settings_pb2
from ortoo.v1.delivery_pb2_grpc import DeliveryServiceStub
from ortoo.v1.findings_pb2_grpc import FindingsServiceStub
from ortoo.v1.settings_pb2_grpc import SettingsServiceStub

_STATES = EnumNames("state", delivery_pb2.DeliveryState)
SNODE_MARGIN_S = 1.0
"""Time for the snode's own work, beyond the limit for the processes that it queries."""


@dataclass(frozen=True, slots=True)
class ClusterFinding:
    """One problem that a process of the cluster reports; its name never changes."""

    name: str
    observed: str
    impact: str
    remedy: str
    """The remedy, with the command."""
    critical: bool
    """True if something does not work because of it; False if it may soon, or needs a look."""
    process: str = ""
    """The process that reports it, such as `enode enode-0`; empty for a comparison of several processes."""
    since_ms: int = 0
    """Since when each check of that process has found it; 0 = an older version, which does not report it."""
    seen_from_ms: int = 0
    """Since when that process has checked. If `since_ms` is equal, the problem may be older."""


@dataclass(frozen=True, slots=True)
class CertificateValidity:
    """The validity of the certificates in a file that a process uses."""

    setting: str
    """The setting that names the file."""
    path: str
    is_roots: bool
    """Whether they are trusted roots, which serve until the last one expires; others until the first one does."""
    begins_ms: int
    """0 = the file cannot be read."""
    ends_ms: int


@dataclass(frozen=True, slots=True)
class ExaminedProcess:
    """A process of the cluster that reported its problems, or that it has none."""

    role: str
    """name server, enode or snode."""
    name: str
    version: str
    now_ms: int
    """Its clock when it answered."""
    certificates: tuple[CertificateValidity, ...] = ()
    """The files of certificates that it uses."""


@dataclass(frozen=True, slots=True)
class ClusterExamination:
    """The problems of a cluster, and the processes that were examined."""

    findings: tuple[ClusterFinding, ...]
    """Serious ones first."""
    processes: tuple[ExaminedProcess, ...]


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The settings of one process."""

    role: str
    name: str
    address: str = ""
    """Address of the process; empty for the snode that answered."""
    settings: tuple[Setting, ...] = ()
    changes: tuple[SettingChange, ...] = ()
    """Oldest first."""
    error: str = ""
    """The reason why the process did not answer or rejected a change; empty if it did neither."""


@dataclass(frozen=True, slots=True)
class MessageDelivery:
    """The state of one message for a group."""

    queue: Queue
    offset: int
    state: str
    """waiting, leased, delayed, acknowledged, parked; outstanding = with a member that commits offsets."""
    attempt: int
    """Number of deliveries so far."""
    until_ms: int
    """End of the lease of the message, or time of its next delivery; 0 = neither."""
    consumer: str
    """The consumer that has it or released it last; empty = unknown."""
    error: str
    """The error that this consumer reported; for a parked message the reason for parking."""


@dataclass(frozen=True, slots=True)
class MessageDeliveries:
    """The states of messages, by queue and offset."""

    messages: tuple[MessageDelivery, ...]
    unreachable_enodes: tuple[str, ...]
    """Enodes that could not be reached."""
    more: bool = False
    """The answer is full; call again with the offset after the last one."""


@dataclass(frozen=True, slots=True)
class ParkedMessages:
    """Messages that an operator parked, or would park."""

    deliveries: tuple[MessageDelivery, ...]
    """Their states before, by offset. Messages that the group had finished are left out."""
    more: bool = False
    """The message groups have more messages than one call examines; call again with a later message."""
    offset: int | None = None
    """The new offset of a group that commits offsets; None = the group pops."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why messages are not consumed; its name never changes."""

    name: str
    observed: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reasons why a group does not consume, most important first."""

    reasons: tuple[Reason, ...]
    delivery: MessageDelivery | None = None
    """State of the message that was asked about."""


class Operations:
    """The operator's calls for settings and for the diagnosis of problems. Available as `Client.admin.operations`."""

    def __init__(self, connection: Connection) -> None:
        """Applications use `Client.admin.operations`."""
        self._connection = connection

    async def list_findings(self, *, timeout_s: float = 2.0) -> list[ClusterFinding]:
        """The problems that processes of the cluster report; serious ones first. Errors: as `examine`."""
        return list((await self.examine(timeout_s=timeout_s)).findings)

    async def examine(self, *, timeout_s: float = 2.0) -> ClusterExamination:
        """The problems that processes of the cluster report, and which processes answered.

        A process must answer within `timeout_s`. Errors: Forbidden, or Unsupported when the snode is older.
        """
        request = findings_pb2.ListFindingsRequest(timeout_ms=int(timeout_s * 1000))
        answer = await self._connection.call(
            FindingsServiceStub, "ListFindings", request, timeout_s=timeout_s + SNODE_MARGIN_S
        )
        return read(ClusterExamination, answer)

    async def list_settings(self, role: str, process: str = "") -> list[ProcessSettings]:
        """The current settings of each process of a role (`namesrv`, `enode` or `snode`), or of the named `process`.

        Errors: Invalid, Forbidden, NotFound (process).
        """
        request = settings_pb2.ListSettingsRequest(role=role, process=process)
        answer = await self._connection.call(SettingsServiceStub, "ListSettings", request)
        return [read(ProcessSettings, one) for one in answer.processes]

    async def update_settings(
        self,
        role: str,
        values: Mapping[str, str],
        *,
        reset: Sequence[str] = (),
        process: str = "",
        dry_run: bool = False,
    ) -> list[ProcessSettings]:
        """Change settings of running processes until their next start.

        `reset` names the settings to restore to their values at the start.

        Values are written as in the environment. If a process refuses the change, no process is changed. With
        `dry_run` the change is only checked. Errors: Invalid (names the setting), Forbidden, NotFound (process),
        Unavailable.
        """
        request = settings_pb2.UpdateSettingsRequest(
            role=role, process=process, values=values, reset=reset, dry_run=dry_run
        )
        answer = await self._connection.call(SettingsServiceStub, "UpdateSettings", request)
        return [read(ProcessSettings, one) for one in answer.processes]

    async def list_setting_changes(self, role: str, process: str = "") -> list[ProcessSettings]:
        """The changes of settings in each process of a role since it started. Errors: as `list_settings`."""
        request = settings_pb2.ListSettingChangesRequest(role=role, process=process)
        answer = await self._connection.call(SettingsServiceStub, "ListSettingChanges", request)
        return [read(ProcessSettings, one) for one in answer.processes]

    async def list_deliveries(
        self,
        group: str,
        topic: str,
        *,
        queue: Queue | None = None,
        from_offset: int | None = None,
        to_offset: int = 0,
        limit: int = 100,
    ) -> MessageDeliveries:
        """The states of messages of a topic, or of one of its queues, for a group, sorted by queue and offset.

        Without `from_offset`, only messages that the group has not finished are listed. `to_offset` is exclusive; 0 =
        the end of the queue. The result has at most `limit` messages of each queue and fits into one answer. Errors:
        NotFound (topic), Invalid.
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
        return MessageDeliveries(
            tuple(map(delivery_of, answer.deliveries)), tuple(answer.unreachable_enodes), answer.more
        )

    async def explain_consumption(self, group: str, topic: str, message_id: str = "") -> Explanation:
        """The reasons why a group does not consume a topic, or one message of that topic.

        Errors: NotFound (topic or message), Invalid.
        """
        request = delivery_pb2.ExplainConsumptionRequest(group=group, topic=topic, message_id=message_id)
        answer = await self._connection.call(DeliveryServiceStub, "ExplainConsumption", request)
        row = delivery_of(answer.delivery) if answer.HasField("delivery") else None
        return Explanation(tuple(read(Reason, one) for one in answer.reasons), row)


def delivery_of(row: delivery_pb2.MessageDelivery) -> MessageDelivery:
    """Convert the state of a message from its protobuf message."""
    return read(MessageDelivery, row, queue=queue_of(row.queue), state=_STATES.name(row.state))
