"""Lists and resets the accounts of exactly-once sinks. The enodes keep them; this module keeps no state."""

from dataclasses import dataclass, replace

from ortoo.common.errors import NotFound, Unavailable
from ortoo.common.groups.sinks import SinkAccount, SinkIdentity, is_sink_group, sink_group
from ortoo.snode.cluster import ClusterView
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.enodes.stored_sinks import StoredSink


@dataclass(frozen=True, slots=True)
class PlacedSink:
    """The account of a sink, its topic, and the enode that keeps it."""

    topic: str
    enode: str
    stored: StoredSink

    @property
    def account(self) -> SinkAccount:
        """The query and its newest batch."""
        return SinkAccount.from_offset(self.stored.offset)


class Sinks:
    """The exactly-once sinks of all topics."""

    def __init__(self, cluster: ClusterView, links: EnodeLinks) -> None:
        self._cluster = cluster
        self._links = links

    async def list_all(self, topic_name: str = "", sink_id: str = "") -> tuple[list[PlacedSink], list[str]]:
        """The sinks of a topic or of all topics, sorted by topic and id, and the unreachable enodes.

        `sink_id` selects one sink by its id or its account. Errors: NotFound (topic), Unsupported (older enodes).
        """
        topic = await self._cluster.watch.topic(topic_name) if topic_name else None
        directory = self._cluster.directory
        enodes = topic.enodes if topic is not None else [entry.name for entry in directory.enodes()]
        topic_id = topic.topic_id if topic is not None else 0
        answers = await self._links.ask_all(enodes, lambda link: link.list_sink_accounts(topic_id))
        names = {one.topic_id: one.name for one in ([topic] if topic is not None else directory.topics())}
        group = sink_group(sink_id) if sink_id else ""
        first: dict[tuple[int, str], PlacedSink] = {}
        """Clients use the account at the first enode by name, if several enodes keep one."""
        for enode, stored in sorted(answers.items()):
            for one in stored:
                if one.topic_id in names and group in ("", one.group):
                    first.setdefault((one.topic_id, one.group), PlacedSink(names[one.topic_id], enode, one))
        found = sorted(first.values(), key=lambda one: (one.topic, one.stored.sink.sink_id, one.stored.group))
        return found, [enode for enode in enodes if enode not in answers]

    async def reset(self, topic_name: str, sink_id: str) -> PlacedSink:
        """Refuse the query of a sink from its next commit on, and allow another one. Returns when that is durable.

        Errors: NotFound, Invalid, Conflict if another query took the account meanwhile, Unavailable.
        """
        group = sink_group(sink_id)
        placed = await self._find(topic_name, sink_id)
        known = placed.stored.sink
        named = known if known.sink_id or is_sink_group(sink_id) else SinkIdentity(sink_id, known.query_id)
        offset = replace(placed.account, is_reset=True).offset
        # A query commits at the first enode, also while the account is at another one.
        first = min((await self._cluster.watch.topic(topic_name)).enodes)
        for enode in sorted({first, placed.enode}):
            await self._links.to(enode).commit_offsets(placed.stored.topic_id, group, [(0, offset, 0)], sink=named)
        return await self._find(topic_name, sink_id)

    async def _find(self, topic_name: str, sink_id: str) -> PlacedSink:
        found, unreachable = await self.list_all(topic_name, sink_id)
        if unreachable:
            raise Unavailable(f"enode {unreachable[0]} is unreachable, and may keep the account; start the enode")
        if not found:
            raise NotFound(
                f"topic {topic_name} has no exactly-once sink {sink_id!r}; list its sinks with `ortoo sink list "
                f"--topic {topic_name}` or AdminService/ListSinks",
                field="sink_id",
            )
        return found[0]
