"""The roles that may call each inner method, one row for each method. Calls of a method without a row are refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ortoo.common.cluster.role_names import Role

Roles = frozenset[Role]
ENODE, SNODE, OPERATOR = (frozenset({role}) for role in (Role.ENODE, Role.SNODE, Role.OPERATOR))


@dataclass(frozen=True, slots=True)
class Callers:
    """The roles that may call a method."""

    roles: Roles
    fields: Mapping[str, Roles] = field(default_factory=dict)
    """Fields of the method's request, and the roles that may set each of them."""

    def of_request(self, request: Any) -> Roles:
        """The roles that may make this request."""
        allowed = self.roles
        for name, roles in self.fields.items():
            assert request is not None, f"{name} cannot be looked at"
            if getattr(request, name):
                allowed &= roles
        return allowed


def _rows(service: str, roles: Roles, *methods: str) -> dict[str, Callers]:
    return {f"{service}/{method}": Callers(roles) for method in methods}


CALLERS: Mapping[str, Callers] = {
    # The name server. Snodes pass on what operators ask them for.
    **_rows("NameService", ENODE, "RegisterEnode", "ReportReplica", "AcquireNamedLease", "ReleaseNamedLease"),
    **_rows("NameService", SNODE, "RegisterSnode", "GetUser", "EndLiteTopics"),
    **_rows("NameService", SNODE | OPERATOR, "CreateTopic", "UpdateTopic", "DeleteTopic", "UndeleteTopic"),
    **_rows("NameService", SNODE | OPERATOR, "GetTopic", "GetTopics", "ListTopics", "ListDeletedTopics"),
    **_rows("NameService", SNODE | OPERATOR, "ListOrphanedTopics", "AdoptTopics"),
    **_rows("NameService", SNODE | OPERATOR, "PutGroup", "DeleteGroup", "UndeleteGroup"),
    **_rows("NameService", SNODE | OPERATOR, "ListGroups", "ListDeletedGroups"),
    **_rows("NameService", SNODE | OPERATOR, "PutUser", "DeleteUser", "ListUsers"),
    **_rows("NameService", SNODE | OPERATOR, "ElectReplica", "AcceptStore", "ForgetEnode"),
    # An enode's tool asks for the living replicas before a disk continues alone.
    **_rows("NameService", ENODE | SNODE | OPERATOR, "ListReplicas"),
    "NameService/Unregister": Callers(ENODE | SNODE, {"enode": ENODE, "snode": SNODE}),
    # Handle keys open every receipt handle, so that only snodes get them.
    "NameService/WatchRoutes": Callers(ENODE | SNODE | OPERATOR, {"include_handle_keys": SNODE}),
    # The storage of an enode.
    **_rows("EnodeService", SNODE, "Append", "AppendDeduplicated", "FetchBatches", "FindOffset", "FindMessages"),
    **_rows("EnodeService", SNODE, "DescribeStore", "DescribeQueues", "DescribeQueuesOfTopics", "MeasureQueues"),
    **_rows("EnodeService", SNODE, "TrimQueues"),
    **_rows("EnodeService", SNODE, "DescribeDeliveries", "Attach"),
    **_rows("EnodeService", SNODE, "DescribeLags", "RecordFailedAttempt", "RecordInterruptions", "FindDeferred"),
    **_rows("EnodeService", SNODE, "ListLagSamples"),
    **_rows("EnodeService", SNODE, "CommitOffsets", "QueryOffsets", "QueryOffsetGroups", "ListSinkAccounts"),
    **_rows("EnodeService", SNODE, "TakeLocks", "ReleaseLocks", "QueryLocks"),
    **_rows("EnodeService", SNODE, "Lease", "PopQueues", "SettlePopped", "RetryMessages", "ReplayStored"),
    **_rows("EnodeService", SNODE, "AwaitMessages"),
    **_rows("EnodeService", SNODE, "RecallDelayed", "ListDelayed"),
    **_rows("EnodeService", SNODE, "StoreHalf", "SettleHalf", "ListHalves", "ResumeHalf", "WatchHalves"),
    **_rows("EnodeService", SNODE, "StoreSchedule", "ListStoredSchedules", "ChangeStoredSchedule"),
    **_rows("EnodeService", SNODE, "UseDeliveryMode", "SetStoredMode", "QueryModes"),
    # Replication between the replicas of an enode, and its administration.
    **_rows("ReplicationService", ENODE, "Exchange", "Join", "CopyFrame"),
    **_rows("EnodeReplicasService", SNODE | OPERATOR, "DescribeReplicas", "HandOver", "AddReplica", "RemoveReplica"),
    # Served by every process.
    **_rows("FindingsService", SNODE | OPERATOR, "ListFindings"),
    **_rows("SettingsService", SNODE | OPERATOR, "ListSettings", "UpdateSettings", "ListSettingChanges"),
}
"""The callers by service and method, such as "NameService/GetUser"."""
