"""The parts of topics that name servers and snodes share."""

import enum
from dataclasses import dataclass
from typing import NamedTuple


class Permission(enum.IntEnum):
    """The operations that a topic allows; the values are those of the protobuf enum."""

    UNSPECIFIED = 0
    """Of a request: the default, or unchanged. No stored topic has it."""
    READ_WRITE = 1
    READ_ONLY = 2
    WRITE_ONLY = 3
    NONE = 4


class MessageType(enum.IntEnum):
    """The type of a message, and the type that a topic accepts; the values are those of the protobuf enum."""

    UNSPECIFIED = 0
    """As the type of a topic: all types."""
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    PRIORITY = 5
    LITE = 6
    """As the type of a topic: the parent of lite topics."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The queues of one topic on one enode. Queue ids begin at 0."""

    enode: str
    read_queue_count: int
    write_queue_count: int


class PublishPlace(NamedTuple):
    """An entry of a publish order: producers use the first `queue_count` queues of a topic on one enode."""

    enode: str
    queue_count: int
