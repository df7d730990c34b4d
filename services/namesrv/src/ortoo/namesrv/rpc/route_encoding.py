"""Encodes changes of the routes: each row once while it is unchanged, and each message once for all watchers."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from ortoo.common.cluster.route_watch import CHECKSUM_MODULUS, checksum_of
from ortoo.common.directory.group import Group
from ortoo.common.groups.handle_seal import HandleKeys
from ortoo.common.grpc.messages import write
from ortoo.namesrv.decisions.deletions import GroupDeletion
from ortoo.namesrv.decisions.placements import PlacementSet
from ortoo.namesrv.decisions.process_leases import Enode, Snode
from ortoo.namesrv.decisions.routes.route_change import Contents, RouteChange
from ortoo.namesrv.decisions.topics import Topic
from ortoo.namesrv.rpc.wire import topic_to, topic_with_set_id
from ortoo.v1 import handle_keys_pb2, topic_pb2
from ortoo.v1.group_deletion_pb2 import DueGroup
from ortoo.v1.namesrv_pb2 import WatchRoutesResponse

PART_BYTES = 1 << 20
"""The approximate maximum size of one message of a watch."""
NAMES_OF_PIECE = 1_000
"""Names and ids are encoded in pieces of this number; a piece is in one message."""
MESSAGES_MAX, MESSAGES_BYTES_MAX = 32, 16 << 20
"""The number and size of the changes that are kept encoded for further watchers. The last change is always kept."""
Row = Topic | Group | Enode | Snode | GroupDeletion
Encoded = TypeVar("Encoded", Topic, Group, Enode, Snode, GroupDeletion)
Item = TypeVar("Item", str, int)


class RouteEncoder:
    """Encodes changes of one directory. Concatenated encodings of messages are the encoding of the merged message."""

    def __init__(self, *, with_placement_sets: bool) -> None:
        """Encode placements as sets that topics name, or in each topic, as older watchers expect."""
        self._with_placement_sets = with_placement_sets
        self._topic_piece = _topic_set_piece if with_placement_sets else _topic_piece
        self._rows: dict[type[Row], dict[str, tuple[Row, bytes]]] = {
            kind: {} for kind in (Topic, Group, Enode, Snode, GroupDeletion)
        }
        """For each kind the encoded rows by name, with the row as it was encoded."""
        self._messages: OrderedDict[tuple[int, bool], tuple[RouteChange, Sequence[bytes]]] = OrderedDict()
        """The encoded messages of the last changes by identity, with and without keys."""
        self._message_bytes = 0
        self._checksums: dict[bool, tuple[int, int]] = {}
        """With all lite topics, and without them: the version of the contents, and their checksum."""

    def messages(self, change: RouteChange, *, include_handle_keys: bool) -> Sequence[bytes]:
        """The messages of a change, each small enough to be sent.

        Processes come first, so that a client that needs a process does not wait for all topics.
        """
        key = id(change), include_handle_keys
        found = self._messages.get(key)
        if found is None:
            found = self._messages[key] = change, self._encoded(change, include_handle_keys=include_handle_keys)
            self._message_bytes += sum(map(len, found[1]))
            while self._is_full():
                _, (_, dropped) = self._messages.popitem(last=False)
                self._message_bytes -= sum(map(len, dropped))
        return found[1]

    def _is_full(self) -> bool:
        count = len(self._messages)
        return count > MESSAGES_MAX or (count > 1 and self._message_bytes > MESSAGES_BYTES_MAX)

    def _encoded(self, change: RouteChange, *, include_handle_keys: bool) -> Sequence[bytes]:
        for kind, names in ((Topic, change.deleted_topics), (Group, change.deleted_groups)):
            for name in names:
                self._rows[kind].pop(name, None)
        if change.snapshot:
            self._forget_all_but(change.topics, change.groups)
        parts: list[list[bytes]] = [[]]
        left_bytes = PART_BYTES
        for piece in self._pieces(change):
            if len(piece) > left_bytes and parts[-1]:
                parts.append([])
                left_bytes = PART_BYTES
            left_bytes -= len(piece)
            parts[-1].append(piece)
        checksum = 0 if change.resumed_to is None else self._checksum_of(change.resumed_to)
        messages = []
        for number, pieces in enumerate(parts):
            is_first = number == 0
            head = WatchRoutesResponse(
                version=change.version,
                directory_id=change.directory_id,
                snapshot=is_first and change.snapshot,
                resumed=is_first and change.resumed,
                contents_checksum=checksum if is_first else 0,
                handle_keys=_keys_to(change.handle_keys) if is_first and include_handle_keys else None,
                more=number < len(parts) - 1,
            )
            messages.append(b"".join([head.SerializeToString(), *pieces]))
        return messages

    def _pieces(self, change: RouteChange) -> Iterator[bytes]:
        """The encoded rows and lists of a change; each piece belongs to one message."""
        yield from self._encoded_rows(Enode, change.enodes, _enode_piece)
        yield from self._encoded_rows(Snode, change.snodes, _snode_piece)
        if self._with_placement_sets:
            sets = {topic.placement_set_id: topic.placement_set for topic in change.topics if topic.placements}
            yield from map(_placement_set_piece, sets.values())
        yield from self._encoded_rows(Topic, change.topics, self._topic_piece)
        yield from self._encoded_rows(Group, change.groups, _group_piece)
        yield from self._encoded_rows(GroupDeletion, change.due_groups, _due_group_piece)
        for names in _slices(change.deleted_topics):
            yield WatchRoutesResponse(deleted_topics=names).SerializeToString()
        for names in _slices(change.deleted_groups):
            yield WatchRoutesResponse(deleted_groups=names).SerializeToString()
        for ids in _slices(change.deleted_topic_ids):
            yield WatchRoutesResponse(deleted_topic_ids=ids).SerializeToString()
        for ids in _slices(change.due_topic_ids):
            yield WatchRoutesResponse(due_topic_ids=ids).SerializeToString()

    def _encoded_rows(
        self, kind: type[Encoded], rows: Iterable[Encoded], encode: Callable[[Encoded], bytes]
    ) -> Iterator[bytes]:
        known = self._rows[kind]
        for row in rows:
            if isinstance(row, Topic) and row.parent:  # there may be very many, and most are sent once
                yield encode(row)
                continue
            found = known.get(row.name)
            if found is None or found[0] is not row:
                found = known[row.name] = row, encode(row)
            yield found[1]

    def _forget_all_but(self, topics: Sequence[Topic], groups: Sequence[Group]) -> None:
        """Forget rows that were deleted while there was no watcher."""
        for kind, rows in ((Topic, topics), (Group, groups)):
            known = self._rows[kind]
            if len(known) > len(rows):
                for name in known.keys() - {one.name for one in rows}:
                    del known[name]

    def _checksum_of(self, contents: Contents) -> int:
        known = self._checksums.get(contents.has_all_topics)
        if known is None or known[0] != contents.version:
            rows = chain(
                self._encoded_rows(Topic, contents.topics, self._topic_piece),
                self._encoded_rows(Group, contents.groups, _group_piece),
            )
            known = self._checksums[contents.has_all_topics] = contents.version, checksum_of(rows)
        return (known[1] + contents.lite_checksum) % CHECKSUM_MODULUS


def _slices(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[start : start + NAMES_OF_PIECE] for start in range(0, len(items), NAMES_OF_PIECE))


def _keys_to(keys: HandleKeys | None) -> handle_keys_pb2.HandleKeys | None:
    if keys is None:
        return None
    listed = [write(handle_keys_pb2.HandleKey, key) for key in keys.keys]
    return handle_keys_pb2.HandleKeys(keys=listed, unsigned_until_ms=keys.unsigned_until_ms)


def _topic_piece(topic: Topic) -> bytes:
    return WatchRoutesResponse(topics=[topic_to(topic)]).SerializeToString()


def _topic_set_piece(topic: Topic) -> bytes:
    return WatchRoutesResponse(topics=[topic_with_set_id(topic)]).SerializeToString()


def _placement_set_piece(placements: PlacementSet) -> bytes:
    ones = [write(topic_pb2.Placement, one) for one in placements]
    listed = topic_pb2.PlacementSet(set_id=placements.set_id, placements=ones)
    return WatchRoutesResponse(placement_sets=[listed]).SerializeToString()


def _group_piece(group: Group) -> bytes:
    return WatchRoutesResponse(groups=[write(topic_pb2.Group, group)]).SerializeToString()


def _enode_piece(enode: Enode) -> bytes:
    return WatchRoutesResponse(enodes=[write(topic_pb2.Enode, enode)]).SerializeToString()


def _snode_piece(snode: Snode) -> bytes:
    return WatchRoutesResponse(snodes=[write(topic_pb2.Snode, snode)]).SerializeToString()


def _due_group_piece(deletion: GroupDeletion) -> bytes:
    return WatchRoutesResponse(due_groups=[write(DueGroup, deletion)]).SerializeToString()
