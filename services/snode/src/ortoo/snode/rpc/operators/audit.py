"""AdminService for the permissions of users and roles, the changes of operators, and refused calls."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from ortoo.common.errors import Invalid, NotFound, OrtooError
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import read, write
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.routes import SnodeEntry
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.policy import Policy
from ortoo.snode.policy.access_rules import Grant, UserRules, grant_text
from ortoo.snode.policy.audit import AuditEntry, latest_of
from ortoo.v1 import admin_pb2_grpc
from ortoo.v1 import audit_pb2 as pb

LISTED_DEFAULT, LISTED_MAX = 100, 1_000
TIMEOUT_S = 2.0
"""Timeout of calls to other snodes."""


@dataclass(kw_only=True, eq=False)
class AuditAdminHandlers(admin_pb2_grpc.AdminServiceServicer):
    """The calls of AdminService about permissions and past calls."""

    runtime: Runtime
    cluster: ClusterView
    policy: Policy

    async def ListPermissions(self, request: pb.ListPermissionsRequest, context: Context) -> pb.ListPermissionsResponse:
        """The permissions in the access file of this snode."""
        access, limit = self.policy.access, _limit(request.limit)
        if access is None:
            return pb.ListPermissionsResponse()
        behind = (one for one in sorted(access.rules.users.items()) if one[0] > request.after)
        return pb.ListPermissionsResponse(
            access_file=access.file.path,
            users=[_encode_user(name, rules) for name, rules in islice(behind, limit)],
            trusted_addresses=map(str, access.rules.trusted),
        )

    async def ListRoles(self, request: pb.ListRolesRequest, context: Context) -> pb.ListRolesResponse:
        """The roles in the access file of this snode."""
        access, limit = self.policy.access, _limit(request.limit)
        if access is None:
            return pb.ListRolesResponse()
        behind = (one for one in sorted(access.rules.roles.items()) if one[0] > request.after)
        user_counts = Counter(role for user in access.rules.users.values() for role in user.roles)
        return pb.ListRolesResponse(
            access_file=access.file.path,
            roles=[_encode_role(name, rules, user_counts[name]) for name, rules in islice(behind, limit)],
        )

    async def DescribeRole(self, request: pb.DescribeRoleRequest, context: Context) -> pb.DescribeRoleResponse:
        """A role in the access file of this snode, and its users."""
        if self.policy.access is None:
            raise NotFound(f"no role {request.name!r}: this snode has no access_file", field="name")
        rules = self.policy.access.rules
        if (role := rules.roles.get(request.name)) is None:
            known = f"it has {', '.join(sorted(rules.roles)[:10])}" if rules.roles else "it has no [[role]]"
            raise NotFound(f"no role {request.name!r} in the access file of this snode; {known}", field="name")
        users = sorted(access_key for access_key, user in rules.users.items() if request.name in user.roles)
        return pb.DescribeRoleResponse(role=_encode_role(request.name, role, len(users)), access_keys=users)

    async def ListAuditEntries(
        self, request: pb.ListAuditEntriesRequest, context: Context
    ) -> pb.ListAuditEntriesResponse:
        """The last changes or refused calls of this snode, or of all snodes."""
        limit = _limit(request.limit)
        lists = [list(islice(self.policy.audit.latest(refused=request.refused), limit))]
        unreachable: list[str] = []
        if not request.local_only:
            local = pb.ListAuditEntriesRequest(refused=request.refused, limit=limit, local_only=True)
            own = self.runtime.settings.name
            others = [one for one in self.cluster.directory.snodes() if one.alive and one.name != own]
            for snode, found in zip(
                others, await asyncio.gather(*(self._ask(one, local) for one in others)), strict=True
            ):
                if found is None:
                    unreachable.append(snode.name)
                else:
                    lists.append(found)
        entries = latest_of(lists, limit)
        return pb.ListAuditEntriesResponse(
            entries=[write(pb.AuditEntry, one) for one in entries], unreachable_snodes=sorted(unreachable)
        )

    async def _ask(self, snode: SnodeEntry, request: pb.ListAuditEntriesRequest) -> list[AuditEntry] | None:
        """The entries of another snode; None if it does not answer, or is of an older version."""
        channel = self.runtime.channels.channel_to(snode.cluster_address or snode.address)
        try:
            with rpc_errors(f"snode {snode.name}", is_internal=True):
                stub = admin_pb2_grpc.AdminServiceStub(await self.policy.forwarding_channel(channel))
                answer = await stub.ListAuditEntries(request, timeout=TIMEOUT_S)
        except OrtooError:
            return None
        return [read(AuditEntry, one) for one in answer.entries]


def _encode_user(access_key: str, rules: UserRules) -> pb.UserPermissions:
    return pb.UserPermissions(
        access_key=access_key,
        admin=rules.admin,
        observer=rules.observer,
        topics=_encode_grants(rules.topics),
        groups=_encode_grants(rules.groups),
        roles=rules.roles,
    )


def _encode_role(name: str, rules: UserRules, user_count: int) -> pb.RolePermissions:
    return pb.RolePermissions(
        name=name,
        admin=rules.admin,
        observer=rules.observer,
        topics=_encode_grants(rules.topics),
        groups=_encode_grants(rules.groups),
        user_count=user_count,
    )


def _encode_grants(grants: Mapping[str, Grant]) -> list[pb.NamePermission]:
    return [pb.NamePermission(name=name, grant=grant_text(grant)) for name, grant in grants.items()]


def _limit(limit: int) -> int:
    """The limit of a list; 0 = the default. Errors: Invalid."""
    if limit > LISTED_MAX:
        raise Invalid(f"{limit}; expected at most {LISTED_MAX}", field="limit")
    return limit or LISTED_DEFAULT
