"""The operator's calls about users. All go through AdminService, so grpcurl can call them too."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ortoo.client.core.connection import Connection
from ortoo.common.grpc.messages import read
from ortoo.v1 import access_pb2, audit_pb2, namesrv_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user who signs requests. Servers do not return its secret."""

    access_key: str
    enabled: bool
    """Whether its signatures are accepted."""
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class GrantedAccess:
    """The permissions of a user on a topic or a group."""

    publish: bool
    subscribe: bool
    browse: bool
    """Whether the user may read without consuming; also true with `subscribe`."""


@dataclass(frozen=True, slots=True)
class CallerAccess:
    """The user that signs the calls of a client, and its permissions."""

    user: str
    """Empty if calls need no signature."""
    admin: bool
    """Whether it may do everything."""
    topics: tuple[GrantedAccess, ...]
    """In the order of the given names."""
    groups: tuple[GrantedAccess, ...]
    """In the order of the given names."""
    observer: bool = False
    """Whether it may see the state of every topic and group. Servers of an earlier version always answer False."""


@dataclass(frozen=True, slots=True)
class NamePermission:
    """The permission on a name, or on all names with a beginning."""

    name: str
    """A name, or the beginning of names with `*` at its end."""
    grant: str
    """PUB, SUB and BROWSE, combined with |, or DENY."""


@dataclass(frozen=True, slots=True)
class UserPermissions:
    """The permissions of a user in the access file of a snode."""

    access_key: str
    admin: bool
    """Whether the user may do everything."""
    topics: tuple[NamePermission, ...]
    groups: tuple[NamePermission, ...]
    observer: bool = False
    """Whether the user may see the state of all topics, groups, clients and processes."""
    roles: tuple[str, ...] = ()
    """Its roles. `topics` and `groups` lack their permissions; `admin` and `observer` include those of the roles."""


@dataclass(frozen=True, slots=True)
class RolePermissions:
    """The permissions of a role in the access file of a snode."""

    name: str
    admin: bool
    """Whether its users may do everything."""
    observer: bool
    """Whether its users may see the state of all topics, groups, clients and processes."""
    topics: tuple[NamePermission, ...]
    groups: tuple[NamePermission, ...]
    user_count: int


@dataclass(frozen=True, slots=True)
class AccessRoles:
    """One page of the roles."""

    access_file: str
    """The snode's access file; empty = every caller may do everything."""
    roles: tuple[RolePermissions, ...]
    """By name."""


@dataclass(frozen=True, slots=True)
class RoleDescription:
    """A role, and the users who have it."""

    role: RolePermissions
    access_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AccessPermissions:
    """One page of the permissions of users."""

    access_file: str
    """The snode's access file; empty = every caller may do everything."""
    users: tuple[UserPermissions, ...]
    """By access key. Users without an entry have no permissions."""
    trusted_addresses: tuple[str, ...]
    """Networks whose callers need not sign and may do everything."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One call that changed something, or several refused calls of one user, address and method."""

    at_ms: int
    """When it ended; for several calls the last one."""
    snode: str
    user: str
    """The signed-in user; empty = the call was not signed, or its signature was refused."""
    peer: str
    """The address of the caller."""
    method: str
    """Such as "AdminService/DeleteTopic"."""
    target: str
    """The names in the request, such as "topic=orders"."""
    error: str
    """Why it failed or was refused; empty = it succeeded."""
    count: int
    first_at_ms: int
    """When the first of several calls ended."""


@dataclass(frozen=True, slots=True)
class AuditEntries:
    """Entries of the snodes since their start."""

    entries: tuple[AuditEntry, ...]
    """The latest first."""
    unreachable_snodes: tuple[str, ...]
    """Snodes that did not answer; their entries are missing."""


class UserAdmin:
    """The operator's calls about users. Available as `Client.admin.users`."""

    def __init__(self, connection: Connection) -> None:
        """Applications use `Client.admin.users`."""
        self._call = partial(connection.call, AdminServiceStub)

    async def list(self) -> list[UserInfo]:
        """All users, by access key."""
        answer = await self._call("ListUsers", namesrv_pb2.ListUsersRequest())
        return [read(UserInfo, one) for one in answer.users]

    async def describe_access(self, topics: Sequence[str] = (), groups: Sequence[str] = ()) -> CallerAccess:
        """The user of this client, and its permissions on topics and groups, at most 1,024 of each.

        Errors: Forbidden (field `authorization`) for a wrong signature, Invalid, Unsupported by older servers.
        """
        request = access_pb2.DescribeAccessRequest(topics=topics, groups=groups)
        return read(CallerAccess, await self._call("DescribeAccess", request))

    async def put(self, access_key: str, *, secret_key: str = "", enabled: bool | None = None) -> UserInfo:
        """Create or change a user. An empty `secret_key` and `enabled` None are unchanged.

        A new user needs a secret of 6 to 255 characters, and is enabled. Snodes apply a change within half a minute.
        Errors: Invalid.
        """
        user = namesrv_pb2.User(access_key=access_key, enabled=enabled)
        answer = await self._call("PutUser", namesrv_pb2.PutUserRequest(user=user, secret_key=secret_key))
        return read(UserInfo, answer.user)

    async def delete(self, access_key: str) -> None:
        """Delete a user. Errors: NotFound."""
        await self._call("DeleteUser", namesrv_pb2.DeleteUserRequest(access_key=access_key))

    async def list_permissions(self, *, after: str = "", limit: int = 100) -> AccessPermissions:
        """The permissions of at most `limit` users behind the access key `after`. Errors: Invalid, Unsupported."""
        request = audit_pb2.ListPermissionsRequest(after=after, limit=limit)
        return read(AccessPermissions, await self._call("ListPermissions", request))

    async def list_roles(self, *, after: str = "", limit: int = 100) -> AccessRoles:
        """At most `limit` roles behind the name `after`. Errors: Invalid, Unsupported."""
        request = audit_pb2.ListRolesRequest(after=after, limit=limit)
        return read(AccessRoles, await self._call("ListRoles", request))

    async def describe_role(self, name: str) -> RoleDescription:
        """A role and its users. Errors: NotFound, Unsupported."""
        return read(RoleDescription, await self._call("DescribeRole", audit_pb2.DescribeRoleRequest(name=name)))

    async def list_audit_entries(self, *, refused: bool = False, limit: int = 100) -> AuditEntries:
        """The last calls of operators that changed something, or the last refused calls.

        Errors: Invalid, Unsupported.
        """
        request = audit_pb2.ListAuditEntriesRequest(refused=refused, limit=limit)
        return read(AuditEntries, await self._call("ListAuditEntries", request))
