"""What operators do with groups and clients, for programs without an event loop."""

from collections.abc import Mapping

from ortoo.client.admin.descriptions import (
    ClientDescription,
    ClientInfo,
    DirectResult,
    GroupDescription,
    GroupInfo,
    MemberInfo,
    QueueOffset,
    TopicMode,
)
from ortoo.client.admin.groups import GroupAdmin as AsyncGroupAdmin
from ortoo.client.blocking.loop_thread import LoopThread
from ortoo.client.core.place import Queue


class GroupAdmin:
    """An operator's calls about groups and clients; see `ortoo.client.GroupAdmin`."""

    def __init__(self, thread: LoopThread, groups: AsyncGroupAdmin) -> None:
        """`Client.admin.groups` is the way in."""
        self._thread = thread
        self._groups = groups

    def describe(self, name: str) -> GroupDescription:
        """A group's settings, its members, and how far it is in the topics they want."""
        return self._thread.wait(self._groups.describe(name))

    def update(self, name: str, **changes: int | bool | str | None) -> GroupInfo:
        """Change what is given, by the names of the asynchronous call, and leave the rest."""
        return self._thread.wait(self._groups.update(name, **changes))  # type: ignore[arg-type]

    def consumers(self, group: str) -> list[MemberInfo]:
        """The consumers of a group, by client id."""
        return self._thread.wait(self._groups.consumers(group))

    def of_topic(self, topic: str) -> list[str]:
        """The groups with a member that wants a topic now, by name."""
        return self._thread.wait(self._groups.of_topic(topic))

    def set_mode(self, group: str, topic: str, mode: str, *, force: bool = False) -> str:
        """Change how a group consumes a topic: offsets, pop, pop-in-order or any; returns how it was."""
        return self._thread.wait(self._groups.set_mode(group, topic, mode, force=force))

    def modes(self, group: str) -> list[TopicMode]:
        """How a group consumes its topics, by topic and enode."""
        return self._thread.wait(self._groups.modes(group))

    def reset_offsets(
        self,
        group: str,
        topic: str,
        *,
        time_ms: int | None = None,
        offset: int | None = None,
        offsets: Mapping[Queue, int] | None = None,
        force: bool = False,
    ) -> list[QueueOffset]:
        """Move a group to a time (-1 = the end), to one offset, or to some; without `force` only backwards."""
        return self._thread.wait(
            self._groups.reset_offsets(group, topic, time_ms=time_ms, offset=offset, offsets=offsets, force=force)
        )

    def clone_offsets(self, from_group: str, to_group: str, topic: str) -> list[QueueOffset]:
        """Give a group the offsets of another one."""
        return self._thread.wait(self._groups.clone_offsets(from_group, to_group, topic))

    def clients(self, group: str = "") -> list[ClientInfo]:
        """The clients that are connected, at whichever snode."""
        return self._thread.wait(self._groups.clients(group))

    def describe_client(self, client_id: str, group: str = "", *, ask_client: bool = True) -> ClientDescription:
        """One client and its queues; with `ask_client` as it sees them itself."""
        return self._thread.wait(self._groups.describe_client(client_id, group, ask_client=ask_client))

    def print_stack(self, client_id: str) -> str:
        """What every thread and task of a client is doing, for a person."""
        return self._thread.wait(self._groups.print_stack(client_id))

    def consume_directly(
        self, client_id: str, group: str, queue: Queue, offset: int, body: bytes, *, tag: str = ""
    ) -> DirectResult:
        """Let a client's handler process one message now, whoever owns its queue; no offset moves."""
        return self._thread.wait(self._groups.consume_directly(client_id, group, queue, offset, body, tag=tag))
