"""AdminService for the caller itself: its user and its permissions."""

from collections.abc import Callable, Sequence

from ortoo.common.cluster.names import TOPICS_MAX
from ortoo.common.errors import Invalid
from ortoo.common.grpc.errors import Context
from ortoo.snode.policy.access_rules import READING, Grant
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.v1 import access_pb2 as pb
from ortoo.v1 import admin_pb2_grpc


class AccessHandlers(admin_pb2_grpc.AdminServiceServicer):
    """The call of AdminService for the permissions of its caller."""

    async def DescribeAccess(self, request: pb.DescribeAccessRequest, context: Context) -> pb.DescribeAccessResponse:
        """The user of this call, and its permissions on some topics and groups."""
        caller = PRINCIPAL.get()
        return pb.DescribeAccessResponse(
            user=caller.user,
            admin=caller.is_unrestricted,
            topics=_granted(request.topics, caller.grant_on_topic, "topics"),
            groups=_granted(request.groups, caller.grant_on_group, "groups"),
        )


def _granted(names: Sequence[str], grant_on: Callable[[str], Grant], field: str) -> list[pb.GrantedAccess]:
    """The permissions on each of `names`. Errors: Invalid for too many names."""
    if len(names) > TOPICS_MAX:
        raise Invalid(f"{len(names)} names; give at most {TOPICS_MAX:,}", field=field)
    grants = map(grant_on, names)
    return [
        pb.GrantedAccess(publish=Grant.PUB in one, subscribe=Grant.SUB in one, browse=bool(one & READING))
        for one in grants
    ]
