"""What a client is in a group of its session: who hears what concerns the group, and says which queues it has."""

from typing import Protocol

from ortoo.client.core.received import ReceivedMessage
from ortoo.client.sessions.group_view import GroupView
from ortoo.common.errors import OrtooError
from ortoo.v1 import session_pb2


class GroupMembership(Protocol):
    """Who hears what concerns one group of the session."""

    def members_changed(self, view: GroupView) -> None:
        """These share out the queues now; also told each time the session was opened anew."""

    def refused(self, error: OrtooError) -> None:
        """The group takes this client no more."""

    def running_queues(self) -> list[session_pb2.RunningQueue]:
        """The queues this member has."""

    async def consume_directly(self, message: ReceivedMessage) -> bool:
        """Process one message at once; whether in order. Errors: what the handler raised; Unsupported without one."""
