"""Searches messages by key or id: in sealed segments by their index files, in the last one by entries in memory.

A search blocks, so it runs outside the event loop: in a separate process (`key_process.py`), or, for a disk in memory,
in the store's process.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ortoo.common.errors import OrtooError
from ortoo.common.records.batch import open_batch
from ortoo.common.records.columns import KEYS, MESSAGE_ID
from ortoo.enode.disk.atomic_files import DamagedFile, read_part, write_atomically
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import tag_of
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.index.key_index import KIND_KEY, KeyEntries, KeyIndexFile, encode_keys, text_hash
from ortoo.enode.log.frame import HEADER_BYTES, BadFrame, FrameHeader, FrameKind, decode_header
from ortoo.enode.log.scan import ReadWindow, read_body, walk
from ortoo.enode.log.segment import KEYS_SUFFIX, Segment, segment_name

CANDIDATES_MAX = 4096
"""Hits of one hash that are read before a search stops; a key of nearly every message is useless for a search."""


class KeyQuery(NamedTuple):
    """The criteria of a search."""

    topic_id: int
    kind: int
    text: str
    begin_ms: int
    end_ms: int
    limit: int


class FoundMessage(NamedTuple):
    """The place of a found message."""

    queue_id: int
    offset: int
    stored_at_ms: int


class LogStretch(NamedTuple):
    """A segment, or the durable part of the last segment."""

    base: int
    end: int
    is_sealed: bool


@dataclass(eq=False)
class KeySearch:
    """The key indexes of one store."""

    disk: Disk
    folder: Path
    """The folder of the log and the index files."""
    _tails: dict[int, tuple[KeyEntries, int]] = field(default_factory=dict)
    _files: dict[int, KeyIndexFile] = field(default_factory=dict)
    _segments: dict[int, Segment] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Create an empty cache of open files."""
        self._open = SegmentFiles(self.disk)

    def update(self, stretch: LogStretch) -> None:
        """Index the new frames of the last segment, or write the index file of a sealed segment."""
        if not stretch.is_sealed:
            self._advance(stretch)
            return
        name = segment_name(stretch.base, KEYS_SUFFIX)
        if stretch.base in self._tails or name not in self.disk.list(self.folder):
            self._advance(stretch)
            entries, _ = self._tails.pop(stretch.base)
            data = encode_keys(stretch.base, stretch.end, *entries.sorted(), tag_of(self.disk, self.folder))
            write_atomically(self.disk, self.folder / name, data)

    def _advance(self, stretch: LogStretch) -> None:
        entries, position = self._tails.get(stretch.base) or (KeyEntries(stretch.base), stretch.base)
        segment = self._segment(stretch.base)
        window = ReadWindow(segment.read, stretch.end)
        for one in walk(segment.read, position, stretch.end, window=window):
            if isinstance(one, FrameHeader) and one.kind == FrameKind.MESSAGES:
                records = window.bytes_at(one.position + HEADER_BYTES + one.prefix_length, one.length)
                entries.add(one.position, records, one.topic_id)
        self._tails[stretch.base] = entries, max(position, stretch.end)
        self.close()

    def find(self, query: KeyQuery, stretches: Sequence[LogStretch]) -> list[FoundMessage]:
        """At most `query.limit` messages, the newest first; `stretches` cover the whole log, in order of position."""
        for base in (self._files.keys() | self._tails.keys()) - {one.base for one in stretches}:
            self._tails.pop(base, None)
            self._files.pop(base, None)
        wanted = text_hash(query.text.encode(), query.topic_id, query.kind)
        found: list[FoundMessage] = []
        looked_at = 0
        for stretch in reversed(stretches):
            try:
                # A message with a repeated key has two entries.
                for position, row in dict.fromkeys(reversed(self._places(stretch, wanted))):
                    looked_at += 1
                    message = self._read_match(query, stretch.base, position, row)
                    if message is not None:
                        found.append(message)
                    if len(found) >= query.limit or looked_at >= CANDIDATES_MAX:
                        return found
            except FileNotFoundError:
                continue  # retention deleted the segment meanwhile
            finally:
                self.close()
        return found

    def close(self) -> None:
        """Close all files. No file stays open between two requests, because an open file would keep its disk space."""
        self._open.close()
        self._segments.clear()

    def _places(self, stretch: LogStretch, wanted: int) -> list[tuple[int, int]]:
        if not stretch.is_sealed:
            self.update(stretch)
            return self._tails[stretch.base][0].find(wanted)
        try:
            return self._index_file(stretch.base).find(wanted)
        except (DamagedFile, FileNotFoundError):
            self._files.pop(stretch.base, None)
            if segment_name(stretch.base, KEYS_SUFFIX) in self.disk.list(self.folder):
                self.disk.remove(self.folder / segment_name(stretch.base, KEYS_SUFFIX))
            self.update(stretch)
            return self._index_file(stretch.base).find(wanted)

    def _index_file(self, base: int) -> KeyIndexFile:
        if base not in self._files:
            path = self.folder / segment_name(base, KEYS_SUFFIX)
            with closing(self.disk.open(path, writable=False)) as file:
                size_bytes = file.size_bytes()
            read = partial(read_part, self.disk, path)
            self._files[base] = KeyIndexFile(read, size_bytes, base, tag_of(self.disk, self.folder))
        return self._files[base]

    def _read_match(self, query: KeyQuery, base: int, position: int, row: int) -> FoundMessage | None:
        """Read the message at a place; None if it is damaged, or only its hash matches."""
        segment = self._segment(base)
        try:
            header = decode_header(segment.read(position, HEADER_BYTES), position)
            if header.topic_id != query.topic_id or not query.begin_ms <= header.stored_at_ms < query.end_ms:
                return None
            view = open_batch(header.batch(read_body(segment.read, header)[header.prefix_length :]))
            texts = view.values(KEYS)[row] if query.kind == KIND_KEY else (view.values(MESSAGE_ID)[row],)
        except (BadFrame, OrtooError, IndexError):
            return None
        if query.text not in texts:
            return None
        return FoundMessage(header.queue_id, header.first_offset + row, header.stored_at_ms)

    def _segment(self, base: int) -> Segment:
        if base not in self._segments:
            self._segments[base] = Segment(self._open, self.folder, base, base)
        return self._segments[base]
