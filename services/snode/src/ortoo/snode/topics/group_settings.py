"""What a group may do, by the name server's word; a group that is used and does not exist is created."""

from dataclasses import dataclass

from ortoo.common.errors import Conflict, Forbidden, NotFound, OrtooError
from ortoo.common.process.logs import get_logger
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.name_server import NameServer
from ortoo.snode.cluster.routes import Group


@dataclass(frozen=True, slots=True)
class SlowRule:
    """The thresholds of a group."""

    threshold_messages: int = 1024
    grace_s: float = 10.0

    def broken_by(
        self, *, newest_offset: int, acknowledged_offset: int | None, waiting_since_s: float | None, now_s: float
    ) -> bool:
        """Whether a member is slow in one queue.

        `newest_offset` is the last stored message's. `acknowledged_offset` is None when the group has none yet, which
        is never slow. `waiting_since_s` is since when the server has waited for an acknowledgement; None = it does not.
        """
        if acknowledged_offset is None or waiting_since_s is None:
            return False
        return newest_offset - acknowledged_offset > self.threshold_messages and (
            now_s - waiting_since_s >= self.grace_s
        )


_log = get_logger("groups")


class GroupSettings:
    """The snode's copies of groups. It never writes defaults over what is there."""

    def __init__(self, directory: Directory, name_server: NameServer, *, auto_create: bool) -> None:
        self._directory = directory
        self._name_server = name_server
        self._auto_create = auto_create

    def of(self, name: str) -> Group:
        """The settings of a group, or the defaults while they are not known here."""
        return self._directory.group(name) or Group(name)

    def slow_rule(self, name: str) -> SlowRule:
        """When its members are slow."""
        group = self.of(name)
        return SlowRule(group.slow_consumer_threshold_messages, group.slow_consumer_grace_ms / 1000)

    def why_closed(self, name: str, *, broadcast: bool = False) -> str:
        """Why members may not consume; empty if they may."""
        group = self._directory.group(name)
        if group is None:
            return ""
        if not group.consume_enabled:
            return f"group {name} may not consume: it was switched off; AdminService/UpdateGroup switches it on"
        if broadcast and not group.broadcast_enabled:
            return f"group {name} may not consume as broadcast; AdminService/UpdateGroup allows it"
        return ""

    async def check(self, name: str, *, broadcast: bool = False) -> None:
        """Refuse a group whose members may not consume; create it if it does not exist.

        Errors: Conflict, Forbidden; NotFound when groups are not created by use.
        """
        if self._directory.group(name) is None:
            await self._create(name)
        closed = self.why_closed(name, broadcast=broadcast)
        if closed and not self.of(name).consume_enabled:
            raise Conflict(closed, field="group")
        if closed:
            raise Forbidden(closed, field="message_model")

    async def _create(self, name: str) -> None:
        if not self._auto_create:
            raise NotFound(
                f"there is no group {name!r}, and this snode makes none by use; create it with "
                "AdminService/UpdateGroup, or fix the name",
                field="group",
            )
        try:
            self._directory.learn_group(await self._name_server.ensure_group(name))
        except OrtooError as error:
            if not error.retriable:
                raise
            _log.warning("a group goes on with default settings", group=name, reason=str(error))
