"""What a group may do and how it consumes: copies of the name server's word, and of the enodes'."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Conflict, Forbidden, NotFound, OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.snode import log_events
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.name_server import NameServer
from ortoo.snode.cluster.routes import RETRY_PREFIX, DeliveryMode, Group
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import EnodeLinks, explained
from ortoo.snode.membership.members import SlowRule

_log = get_logger("groups")


class GroupSettings:
    """The snode's copies of groups. It never writes defaults over what is there."""

    def __init__(self, directory: Directory, name_server: NameServer, *, auto_create: bool) -> None:
        self._directory = directory
        self._name_server = name_server
        self.auto_create = auto_create

    def of(self, name: str) -> Group:
        """The settings of a group, or the defaults while they are not known here."""
        return self._directory.group(name) or Group(name)

    def slow_rule(self, name: str) -> SlowRule:
        """When its members are slow."""
        group = self.of(name)
        return SlowRule(group.slow_consumer_threshold_messages, group.slow_consumer_grace_ms / 1000)

    def refusal(self, name: str, *, broadcast: bool = False) -> OrtooError | None:
        """Why members may not consume, a Conflict or Forbidden; None if they may."""
        group = self.of(name)
        if not group.consume_enabled:
            words = f"group {name} may not consume: it was switched off; AdminService/UpdateGroup switches it on"
            return Conflict(words, field="group")
        if broadcast and not group.broadcast_enabled:
            words = f"group {name} may not consume as broadcast; AdminService/UpdateGroup allows it"
            return Forbidden(words, field="message_model")
        return None

    async def check(self, name: str, *, broadcast: bool = False) -> None:
        """Refuse a group whose members may not consume; create it if it does not exist.

        Errors: Conflict, Forbidden; NotFound when groups are not created by use.
        """
        if self._directory.group(name) is None:
            await self._create(name)
        refusal = self.refusal(name, broadcast=broadcast)
        if refusal is not None:
            try:
                raise refusal
            finally:
                del refusal  # its traceback leads to this frame, which must not lead back

    async def _create(self, name: str) -> None:
        if not self.auto_create:
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
            _log.emit(log_events.GROUP_SETTINGS_UNAVAILABLE, group=name, reason=str(error))


TRUST_S = 30.0
"""For so long an enode's word is not asked for again; it refuses later itself, where members take locks or pop."""
TRUSTED_MAX = 50_000


@dataclass(frozen=True, slots=True)
class TopicMode:
    """How a group consumes a topic on an enode."""

    topic: str
    enode: str
    mode: DeliveryMode


class DeliveryModes:
    """The modes of all groups; the enodes keep them."""

    def __init__(self, directory: Directory, watch: DirectoryWatch, links: EnodeLinks, clock: Clock) -> None:
        self._directory = directory
        self._watch = watch
        self._links = links
        self._clock = clock
        self._trusted: OrderedDict[tuple[int, str, DeliveryMode], float] = OrderedDict()

    async def use(self, group: str, topics: Iterable[str], mode: DeliveryMode) -> None:
        """A member of a group begins to consume topics. Errors: Conflict when the group does so in another way.

        An enode that is away is not asked: it refuses by itself when it is back.
        """
        for name in topics:
            if name.startswith(RETRY_PREFIX):
                continue
            topic = await self._watch.topic(name)
            key = (topic.topic_id, group, mode)
            if self._trusted.get(key, 0.0) > self._clock.monotonic_s():
                continue
            for placement in topic.placements:
                try:
                    await self._links.to(placement.enode).use_mode(topic.topic_id, group, mode)
                except OrtooError as error:
                    if not explained(error).retriable:
                        raise
            self._trusted[key] = self._clock.monotonic_s() + TRUST_S
            while len(self._trusted) > TRUSTED_MAX:
                self._trusted.popitem(last=False)

    async def set(self, group: str, topic_name: str, mode: DeliveryMode, *, force: bool) -> DeliveryMode:
        """Change how a group consumes a topic, on all its enodes; returns how it was.

        Errors: NotFound, Invalid; Conflict while members have messages or queues, unless forced; Unavailable when an
        enode is away: then some may have changed, and the same call goes on.
        """
        check_group_name(group, "group")
        topic = await self._watch.topic(topic_name)
        before = DeliveryMode.UNDECIDED
        for placement in topic.placements:
            try:
                was = await self._links.to(placement.enode).set_mode(topic.topic_id, group, mode, force=force)
            except OrtooError as error:
                raise explained(error) from error
            before = before or was
        for key in [key for key in self._trusted if key[:2] == (topic.topic_id, group)]:
            del self._trusted[key]
        return before

    async def listed(self, group: str) -> list[TopicMode]:
        """How a group consumes its topics, by topic and enode; those of an enode that is away are missing."""
        check_group_name(group, "group")
        names = {topic.topic_id: topic.name for topic in self._directory.topics()}
        enodes = [entry.name for entry in self._directory.enodes()]
        answers = await self._links.ask(enodes, lambda link: link.modes(group))
        found = [
            TopicMode(names[topic_id], enode, mode)
            for enode, rows in answers.items()
            for topic_id, mode in rows
            if topic_id in names
        ]
        return sorted(found, key=lambda one: (one.topic, one.enode))
