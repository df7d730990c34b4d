"""The settings of groups, from the name server, and their delivery modes, from the enodes."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from ortoo.common.cluster.names import check_group_name
from ortoo.common.directory.group import Group
from ortoo.common.errors import Conflict, Forbidden, NotFound, OrtooError
from ortoo.common.groups.group_topics import RETRY_PREFIX
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.snode import log_events
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.name_server import NameServerClient
from ortoo.snode.cluster.routes import DeliveryMode, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import EnodeLinks, explain_error
from ortoo.snode.membership.group_members import SlowConsumerRule

RETRY_AFTER_MS = 5_000
"""Told to the members of a disabled group: running consumers wait until an operator enables the group again."""
_log = get_logger("groups")


class GroupSettings:
    """Reads the settings of groups, and creates missing groups."""

    def __init__(self, directory: DirectoryCache, name_server: NameServerClient, *, auto_create: bool) -> None:
        self._directory = directory
        self._name_server = name_server
        self.auto_create = auto_create

    def get(self, name: str) -> Group:
        """The settings of a group in the directory's copy; the defaults if the copy does not have the group."""
        return self._directory.group(name) or Group(name)

    def slow_rule(self, name: str) -> SlowConsumerRule:
        """The thresholds above which members of this group are slow."""
        group = self.get(name)
        return SlowConsumerRule(group.slow_consumer_threshold_messages, group.slow_consumer_grace_ms / 1000)

    def refusal(self, name: str, *, broadcast: bool = False) -> OrtooError | None:
        """The error if members of a group may not consume, or may not consume as `broadcast`; None if they may."""
        group = self.get(name)
        if not group.consume_enabled:
            message = f"group {name} may not consume, because it is disabled; enable it with AdminService/UpdateGroup"
            return Conflict(message, field="group", retry_after_ms=RETRY_AFTER_MS)
        if broadcast and not group.broadcast_enabled:
            message = f"group {name} may not consume as broadcast; AdminService/UpdateGroup allows it"
            return Forbidden(message, field="message_model")
        return None

    async def check(self, name: str, *, broadcast: bool = False) -> None:
        """Refuse a group whose members may not consume; a missing group is created.

        Errors: Conflict, Forbidden, NotFound if groups are not created automatically.
        """
        if self._directory.group(name) is None:
            await self._create(name)
        refusal = self.refusal(name, broadcast=broadcast)
        if refusal is not None:
            try:
                raise refusal
            finally:
                del refusal  # avoid a reference cycle through its traceback

    async def _create(self, name: str) -> None:
        if not self.auto_create:
            raise NotFound(
                f"there is no group {name!r}, and this snode creates none automatically; create it with "
                "AdminService/UpdateGroup, or fix the name",
                field="group",
            )
        try:
            self._directory.update_group(await self._name_server.ensure_group(name))
        except OrtooError as error:
            if not error.retriable:
                raise
            _log.emit(log_events.GROUP_SETTINGS_UNAVAILABLE, group=name, reason=str(error))


MODE_CACHE_TTL_S = 30.0
"""Time for which a mode confirmed by an enode is not checked again. The enode also checks later, at locks and pops."""
RENEW_AHEAD_S = 5.0
"""The time before the end of a confirmation at which idle polls renew it. After the end, each poll would be a call."""
MODE_CACHE_MAX = 50_000


@dataclass(frozen=True, slots=True)
class TopicMode:
    """The delivery mode of a group for a topic on one enode."""

    topic: str
    enode: str
    mode: DeliveryMode | int
    """A number if this version does not know the mode."""


class DeliveryModes:
    """Reads and changes the delivery modes of groups, which the enodes store."""

    def __init__(self, directory: DirectoryCache, watch: DirectoryWatch, links: EnodeLinks, clock: Clock) -> None:
        self._directory = directory
        self._watch = watch
        self._links = links
        self._clock = clock
        self._cached_until_s: OrderedDict[tuple[int, str, DeliveryMode], float] = OrderedDict()
        self._renewing: set[tuple[int, str, DeliveryMode]] = set()

    async def ensure_mode(self, group: str, topics: Iterable[str], mode: DeliveryMode) -> None:
        """Set the delivery mode of a group for topics, unless it is set. Errors: Conflict if another mode is set.

        Unreachable enodes are skipped, because they check the mode again when the group consumes from them.
        """
        for name in topics:
            if name.startswith(RETRY_PREFIX):
                continue
            topic = await self._watch.topic(name)
            if self.is_confirmed(topic, group, mode):
                continue
            await self._confirm(topic, group, mode)

    async def _confirm(self, topic: Topic, group: str, mode: DeliveryMode) -> None:
        for placement in topic.placements:
            try:
                await self._links.to(placement.enode).use_mode(topic.topic_id, group, mode)
            except OrtooError as error:
                if not explain_error(error).retriable:
                    raise
        self._cached_until_s[topic.topic_id, group, mode] = self._clock.monotonic_s() + MODE_CACHE_TTL_S
        while len(self._cached_until_s) > MODE_CACHE_MAX:
            self._cached_until_s.popitem(last=False)

    def begin_renewal(self, topic: Topic, group: str, mode: DeliveryMode) -> bool:
        """Whether the caller has to call `renew`, because the confirmation ends soon. It does so for one caller."""
        key = topic.topic_id, group, mode
        if key in self._renewing or self._cached_until_s.get(key, 0.0) > self._clock.monotonic_s() + RENEW_AHEAD_S:
            return False
        self._renewing.add(key)
        return True

    async def renew(self, topic: Topic, group: str, mode: DeliveryMode) -> None:
        """Confirm the delivery mode again. After an error it is not confirmed, and a later call reports the error."""
        key = topic.topic_id, group, mode
        try:
            await self._confirm(topic, group, mode)
        except OrtooError:
            self._cached_until_s.pop(key, None)
        finally:
            self._renewing.discard(key)

    def is_confirmed(self, topic: Topic, group: str, mode: DeliveryMode) -> bool:
        """Whether the enodes of a topic have recently confirmed the delivery mode of a group."""
        return self._cached_until_s.get((topic.topic_id, group, mode), 0.0) > self._clock.monotonic_s()

    async def set_mode(self, group: str, topic_name: str, mode: DeliveryMode, *, force: bool) -> DeliveryMode | int:
        """Change the delivery mode of a group for a topic on all its enodes; returns the previous mode.

        Errors: NotFound, Invalid, Conflict while group members have messages or queues (unless `force`), Unavailable if
        an enode is unreachable. After Unavailable some enodes may have changed; the same call continues.
        """
        check_group_name(group, "group")
        topic = await self._watch.topic(topic_name)
        previous: DeliveryMode | int = DeliveryMode.UNDECIDED
        for placement in topic.placements:
            try:
                enode_previous = await self._links.to(placement.enode).set_mode(
                    topic.topic_id, group, mode, force=force
                )
            except OrtooError as error:
                raise explain_error(error) from error
            previous = previous or enode_previous
        for key in [key for key in self._cached_until_s if key[:2] == (topic.topic_id, group)]:
            del self._cached_until_s[key]
        return previous

    async def list_modes(self, group: str) -> list[TopicMode]:
        """The delivery modes of a group, by topic and enode. Those on unreachable enodes are left out."""
        check_group_name(group, "group")
        enodes = [entry.name for entry in self._directory.enodes()]
        answers = await self._links.ask_all(enodes, lambda link: link.query_modes(group))
        names = await self._watch.topic_names(topic_id for rows in answers.values() for topic_id, _ in rows)
        found = [
            TopicMode(names[topic_id], enode, mode)
            for enode, rows in answers.items()
            for topic_id, mode in rows
            if topic_id in names
        ]
        return sorted(found, key=lambda one: (one.topic, one.enode))
