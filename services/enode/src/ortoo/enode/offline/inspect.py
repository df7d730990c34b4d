"""`ortoo-enode inspect DIR`: read a store without the server, as JSON lines. Writes nothing.

* `ortoo-enode inspect DIR`: segments, topics, queues, offsets, damage
* `ortoo-enode inspect DIR --verify`: also read every byte, and list all damage
* `ortoo-enode inspect DIR --frames`: also every frame header
* `ortoo-enode inspect DIR --state`: also the deduplication windows of producers
* `ortoo-enode inspect DIR --message ID`: only the frame of this message

Each line is an object. Integers are as in JSON of protobuf: those of at most 32 bits are numbers, the others strings.
A store that is open in a server can be inspected. Frames that the server writes meanwhile may look like a torn tail.
"""

import argparse
import base64
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from ortoo.common.errors import Invalid, NotFound
from ortoo.common.records.message_id import message_address
from ortoo.enode.changes.kinds import decode_changes, encode_changes
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.disk.identity import read_identity
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.index.catalog import LogCatalog
from ortoo.enode.log.frame import HEADER_BYTES, FrameHeader, FrameKind
from ortoo.enode.log.results import Damage
from ortoo.enode.log.scan import Hole, walk
from ortoo.enode.log.segment import Segment
from ortoo.enode.recovery.only_copy import Recovered, recover

Line = dict[str, Any]
NUMBERS = frozenset(
    (
        *("codec", "count", "crc", "flags", "header_crc", "inflated_bytes", "item_count", "length", "payload_crc"),
        *("prefix_crc", "prefix_length", "queue_count", "queue_id", "row", "store_open"),
    )
)
"""The fields whose integers have at most 32 bits; all other integers are printed as strings."""


def main(arguments: Sequence[str]) -> int:
    """Print the requested lines. Returns 0, or 3 when damage was found. Errors: OrtooError."""
    parser = argparse.ArgumentParser(prog="ortoo-enode inspect", description="Read a store without the server.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the store's folder")
    parser.add_argument("--verify", action="store_true", help="read every byte and list all damage")
    parser.add_argument("--frames", action="store_true", help="show every frame's header")
    parser.add_argument("--state", action="store_true", help="show the deduplication windows of producers too")
    parser.add_argument("--message", metavar="ID", help="show only the frame of this message")
    chosen = parser.parse_args(arguments)
    disk = RealDisk()
    if chosen.message:
        lines: Iterator[Line] = iter([find_message(disk, chosen.folder, chosen.message)])
    else:
        lines = inspect(disk, chosen.folder, verify=chosen.verify, frames=chosen.frames, state=chosen.state)
    damaged = False
    for line in lines:
        damaged = damaged or line["type"] == "damage"
        sys.stdout.write(json.dumps(_printable(line), ensure_ascii=False) + "\n")
    return 3 if damaged else 0


def inspect(
    disk: Disk, folder: Path, *, verify: bool = False, frames: bool = False, state: bool = False
) -> Iterator[Line]:
    """The contents of a store, one line each. Errors: NotFound, DataLoss, Unsupported."""
    recovered = _read(disk, folder)
    catalog = recovered.catalog
    identity = read_identity(disk, folder)
    if identity is not None:
        yield _line("store", identity)
    yield _line(
        "log",
        begin_position=catalog.begin_position,
        end_position=recovered.end_position,
        store_open=recovered.store_open,
        stored_at_ms=recovered.stored_at_ms,
        was_clean=recovered.was_clean,
    )
    for segment in catalog.segments:
        end = segment.end if segment.end is not None else recovered.end_position
        yield _line(
            "segment",
            file=segment.path.name,
            position=segment.base,
            used_bytes=end - segment.base,
            file_bytes=segment.size_bytes(),
            is_sealed=segment is not catalog.segments[-1],
            has_index=segment.base in catalog.contents,
        )
        if frames:
            yield from _frames(segment, end)
    yield from _state(recovered, windows=state)
    known = set()
    for damage in catalog.damages:
        known.add(damage.position)
        yield _line("damage", damage)
    if verify:
        yield from _verify(catalog, recovered.end_position, known)
    catalog.close()


def find_message(disk: Disk, folder: Path, message_id: str) -> Line:
    """Find the frame of a message by its id, which contains the message's place.

    Errors: Invalid for another kind of id. NotFound when no frame holds it.
    """
    address = message_address(message_id)
    if address is None:
        raise Invalid(f"{message_id!r}; expected an id such as 00c0ffee00c0ffee-enode-0-3-42", field="--message")
    topic_id, _, queue_id, offset = address
    catalog = _read(disk, folder).catalog
    try:
        for segment in catalog.segments:
            for one in walk(segment.read, segment.base, segment.end or segment.limit):
                if (
                    isinstance(one, FrameHeader)
                    and one.kind == FrameKind.MESSAGES
                    and (one.topic_id, one.queue_id) == (topic_id, queue_id)
                    and one.first_offset <= offset < one.end_offset
                ):
                    body = segment.read(one.position + HEADER_BYTES, one.prefix_length + one.length)
                    records = base64.b64encode(body[one.prefix_length :]).decode()
                    return _frame(segment, one, row=offset - one.first_offset, records_base64=records)
    finally:
        catalog.close()
    raise NotFound(f"no frame of {folder} holds offset {offset} of topic {topic_id:016x} queue {queue_id}")


def _read(disk: Disk, folder: Path) -> Recovered:
    names = disk.list(folder)
    if not any(name.endswith(".seg") for name in names):
        raise NotFound(f"{folder} holds no log: expected files such as {0:020d}.seg")
    return recover(SegmentFiles(disk), folder, repairs=False)


def _line(kind: str, thing: object = None, /, **more: Any) -> Line:
    """The output line of type `kind`: the fields of the dataclass `thing`, and `more`. Topic ids are in hex."""
    fields = asdict(thing) if is_dataclass(thing) and not isinstance(thing, type) else {}
    line: Line = {"type": kind, **fields, **more}
    if "topic_id" in line:
        line["topic_id"] = f"{line['topic_id']:016x}"
    return line


def _printable(value: Any, field: str = "") -> Any:
    """The printed form of a value of `field`; lists and dictionaries are converted recursively."""
    if isinstance(value, dict):
        return {name: _printable(item, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item, field) for item in value]
    return str(value) if type(value) is int and field not in NUMBERS else value


def _frame(segment: Segment, header: FrameHeader, **more: Any) -> Line:
    fields = {name: value for name, value in header._asdict().items() if name != "magic"}
    fields["kind"] = FrameKind(header.kind).name.lower()
    return _line("frame", file=segment.path.name, **fields, **more)


def _frames(segment: Segment, end: int) -> Iterator[Line]:
    for one in walk(segment.read, segment.base, end):
        yield _line("hole", file=segment.path.name, **asdict(one)) if isinstance(one, Hole) else _frame(segment, one)


def _state(recovered: Recovered, *, windows: bool) -> Iterator[Line]:
    catalog, state = recovered.catalog, recovered.state
    for topic in state.topics.all():
        yield _line("topic", topic)
        for group in state.offsets.groups(topic.topic_id):
            offsets = state.offsets.of(topic.topic_id, group)
            yield _line("offsets", topic_id=topic.topic_id, group=group, offsets=offsets)
    for (topic_id, queue_id), queue in sorted(catalog.queues.items()):
        begin, end = queue.begin_offset, queue.end_offset
        yield _line("queue", topic_id=topic_id, queue_id=queue_id, begin_offset=begin, end_offset=end)
    if windows:
        for change in decode_changes(encode_changes(tuple(state.windows.checkpoint()))):
            yield _line("window", change)


def _verify(catalog: LogCatalog, end_position: int, known: set[int]) -> Iterator[Line]:
    """Read every frame's body; known damage is not listed again."""
    checked = 0
    for segment in catalog.segments:
        end = segment.end if segment.end is not None else end_position
        for one in walk(segment.read, segment.base, end, bodies_from=segment.base):
            if isinstance(one, Hole):
                if one.position not in known:
                    queues = _queues_at(segment, one.position)
                    yield _line(
                        "damage", Damage(segment.path.name, one.position, one.length, one.reason), queues=queues
                    )
            else:
                checked += 1
    yield _line("verified", frames=checked)


def _queues_at(segment: Segment, position: int) -> list[Line]:
    """The queue and offsets in the header of a frame whose body is bad."""
    one = next(iter(walk(segment.read, position, segment.limit)), None)
    if not isinstance(one, FrameHeader) or one.position != position or one.kind != FrameKind.MESSAGES:
        return []
    begin, end = one.first_offset, one.end_offset
    lost = _line("", topic_id=one.topic_id, queue_id=one.queue_id, begin_offset=begin, end_offset=end)
    del lost["type"]
    return [lost]
