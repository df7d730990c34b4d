"""The operator's calls about users. All go through AdminService, so grpcurl can call them too."""

from dataclasses import dataclass
from functools import partial

from ortoo.client.core.connection import Connection
from ortoo.common.grpc.messages import read
from ortoo.v1 import namesrv_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user who signs requests. Servers do not return its secret."""

    access_key: str
    enabled: bool
    """Whether its signatures are accepted."""
    created_at_ms: int


class UserAdmin:
    """The operator's calls about users. Available as `Client.admin.users`."""

    def __init__(self, connection: Connection) -> None:
        """Applications use `Client.admin.users`."""
        self._call = partial(connection.call, AdminServiceStub)

    async def list(self) -> list[UserInfo]:
        """All users, by access key."""
        answer = await self._call("ListUsers", namesrv_pb2.ListUsersRequest())
        return [read(UserInfo, one) for one in answer.users]

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
