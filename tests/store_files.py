"""Every file of a store: what it holds, and what a start does when it is lost. The page and the tests are made of this.

python -m tests.store_files docs/formats/files.md
"""

import enum
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.enode.log.frame import HEADER_BYTES, FrameHeader, Kind
from ortoo.enode.log.scan import walk


class Harm(enum.StrEnum):
    """What may happen to a file while no process has the store open."""

    DELETED = "deleted"
    EMPTIED = "emptied"
    OLDER = "older copy"
    FOREIGN = "of another store"


class Start(enum.StrEnum):
    """What the next starts do."""

    RIGHT = "starts right"
    REFUSED = "refuses"
    NAMED = "names the loss"
    ABSENT = "-"
    """Such a store has no such file."""


OTHER_LOG = 77
"""The fingerprint of another log."""
LAST_SEGMENT = "`<position>.seg`, the last"
FULL_SEGMENT = "`<position>.seg`, the others"
ALWAYS_RIGHT: Mapping[Harm, Start] = dict.fromkeys(Harm, Start.RIGHT)
NEVER_THERE: Mapping[Harm, Start] = dict.fromkeys(Harm, Start.ABSENT)
REFUSED: Mapping[Harm, Start] = dict.fromkeys(Harm, Start.REFUSED)


@dataclass(frozen=True, slots=True)
class StoreFile:
    """One kind of file."""

    name: str
    pattern: str
    """Of the names of its files."""
    holds: str
    may_be_missing: str
    without: str
    """What a start does without it."""
    alone: Mapping[Harm, Start] = field(default_factory=lambda: ALWAYS_RIGHT)
    """In a store of an enode without replicas."""
    replicas: Mapping[Harm, Start] = field(default_factory=lambda: ALWAYS_RIGHT)
    """In one of three replicas."""


def outcomes(most: Start, **others: Start) -> Mapping[Harm, Start]:
    """One for every harm, with exceptions by name."""
    return dict.fromkeys(Harm, most) | {Harm[name.upper()]: start for name, start in others.items()}


FILES = (
    StoreFile(
        "`identity`",
        r"identity",
        "Which store this is: cluster, enode, store id, the disk id of a replica, whether the store has hard state.",
        "no",
        "Refuses. A folder without any file is a new store, which a name server refuses that knows the enode.",
        outcomes(Start.REFUSED, older=Start.RIGHT),
        outcomes(Start.REFUSED, older=Start.RIGHT),
    ),
    StoreFile(
        "`reign`",
        r"reign",
        "The hard state of a replica: number and disk id, the set, the highest epoch promised and to which replica, "
        "what the disk has lost, the start counter with its random part.",
        "no",
        "Refuses: a promise that is forgotten is given twice. An older copy is noticed by `serials`.",
        NEVER_THERE,
        REFUSED,
    ),
    StoreFile(
        "`outline`",
        r"outline",
        "The log summary of a replica: epochs, the replicas of the set, a cut that is under way.",
        "no",
        "Refuses: the first replicas of a set are named nowhere else. An older copy, which may tell of a cut that was "
        "done long ago, is noticed by `serials`.",
        NEVER_THERE,
        REFUSED,
    ),
    StoreFile(
        LAST_SEGMENT,
        r"\d{20}\.seg",
        "The segment that the log goes on in: messages, state changes, checkpoints, and the count of openings.",
        "of a replica",
        "A replica takes the missing frames from the others, and leads only when it has them. Alone, offsets that it "
        "held answer DATA_LOSS and are not given again. Of a file that is cut short the store goes back to what is "
        "left, under another store id.",
        outcomes(Start.NAMED, foreign=Start.REFUSED),
        outcomes(Start.RIGHT, foreign=Start.REFUSED),
    ),
    StoreFile(
        FULL_SEGMENT,
        r"\d{20}\.seg",
        "A full segment of the log.",
        "of a replica",
        "A replica takes a missing frame from the others when it is read, or at a start, when the state is folded "
        "from it. Alone, the offsets that it held answer DATA_LOSS.",
        outcomes(Start.NAMED),
        outcomes(Start.RIGHT),
    ),
    StoreFile(
        "`<position>.idx`",
        r"\d{20}\.idx",
        "The queue index of a full segment.",
        "yes",
        "Makes it again from the segment.",
    ),
    StoreFile(
        "`<position>.keys`",
        r"\d{20}\.keys",
        "The key index of a full segment.",
        "yes",
        "Nothing; the next search makes it again from the segment.",
    ),
    StoreFile(
        "`begin`",
        r"begin",
        "Where the log begins: what retention let go, and the first offset of each queue.",
        "yes",
        "Takes the position from `serials`, and the offsets from the segments.",
    ),
    StoreFile(
        "`clean`",
        r"clean",
        "The marker of a clean stop: the state and the index of the last segment.",
        "yes",
        "Reads the last segment, and folds the state from the newest checkpoint on.",
    ),
    StoreFile(
        "`durable`",
        r"durable",
        "How far the log was durable and committed when the store fell idle: a witness beside the marks in the log.",
        "yes",
        "Relies on the marks in the log. Damage of the newest frames may be taken for a torn end.",
    ),
    StoreFile(
        "`serials`",
        r"serials",
        "The numbers of the last writes of `reign`, `outline` and `begin`, by which older copies of them are noticed.",
        "yes",
        "Makes it again with the next write; until then an older copy is not noticed.",
    ),
    StoreFile(
        "`restored`",
        r"restored",
        "That the store ends before what its clients know of it, until its first start has ended what they hold.",
        "no",
        "Refuses when `identity` tells of it: run the command again that made the store.",
        outcomes(Start.RIGHT, deleted=Start.REFUSED, emptied=Start.REFUSED),
        NEVER_THERE,
    ),
    StoreFile(
        "`cut-<epoch>-<position>`",
        r"cut-\d+-\d+",
        "Frames that a replica has cut out of its log, because the leader does not have them.",
        "yes",
        "Nothing; it is kept for an operator.",
        NEVER_THERE,
        ALWAYS_RIGHT,
    ),
    StoreFile("`<number>.spare`", r"\d+\.spare", "A future segment, all zeros.", "yes", "Makes another one."),
    StoreFile("`*.tmp`", r".*\.tmp", "A small file that was being written.", "yes", "Removes it."),
)

HEAD = """# Every file of a store

Made by `python -m tests.store_files docs/formats/files.md`; the tests of lost files are made of the same table.
[The log of an enode](log.md) has the formats, [crash safety](crash-safety.md) the argument.

A store is one folder. This page says what a start does when a file of it is lost. Every later start does the same. A
start that is refused changes nothing, names the file and says what to do. With the file put back it starts right. No
message is taken for another one, and no second history begins under one store id.

The lock of a process is on the folder itself and leaves no file. Checkpoints, topics, offsets and the list of replicas
are frames of the log. A running process notices that its folder was moved away, replaced or emptied: with the next
flush, or within a second. It acknowledges nothing from then on, and `ortoo doctor` says `data folder missing`.

"""
TAIL = """
*Starts right* means that everything acknowledged is there. *Names the loss* means that the start names the file and the
positions, that the offsets of the file answer DATA_LOSS, and that all else is served. It happens only to segments
of an enode without replicas, for nothing else has a copy of them. A disk of a replica that is refused is emptied and
[admitted as a new replica](../operations/members.md); nothing is lost by that.

No file tells that a whole disk was put back from an older image. Its start has another number than any before, so no
promise or message for an earlier start counts. A name server refuses it while it knows the later start, and no other
replica cuts what it knows to be committed. Never start such a disk: empty it.
"""


def names_of(row: StoreFile, names: Sequence[str]) -> list[str]:
    """The files of a store that a row is about."""
    found = sorted(name for name in names if re.fullmatch(row.pattern, name))
    if not row.pattern.endswith("seg"):
        return found
    return found[-1:] if row.name == LAST_SEGMENT else found[:-1]


def undescribed(names: Sequence[str]) -> list[str]:
    """The files of a store that no row is about."""
    return [name for name in names if not any(re.fullmatch(row.pattern, name) for row in FILES)]


def of_another_log(data: bytes, base: int) -> bytes:
    """A segment as another store would have it at this position: whole frames of other topics, with its mark."""
    found = bytearray(data)
    for one in walk(lambda at, length: data[at - base : at - base + length], base, base + len(data)):
        if isinstance(one, FrameHeader):
            is_message = one.kind == Kind.MESSAGES
            other = one._replace(topic_id=one.topic_id + 1) if is_message else one._replace(producer_id=OTHER_LOG)
            found[one.position - base : one.position - base + HEADER_BYTES] = other.encoded()
    return bytes(found)


def page() -> str:
    """The page."""
    lines = ["| file | holds | may be missing | a start without it |", "|---|---|---|---|"]
    lines += [f"| {one.name} | {one.holds} | {one.may_be_missing} | {one.without} |" for one in FILES]
    for title, kind in (("an enode without replicas", "alone"), ("one of three replicas", "replicas")):
        lines += ["", f"## The starts of {title}", ""]
        lines += [f"| file | {' | '.join(Harm)} |", f"|---|{'---|' * len(Harm)}"]
        for one in FILES:
            starts: Mapping[Harm, Start] = getattr(one, kind)
            if starts is not NEVER_THERE:
                lines.append(f"| {one.name} | {' | '.join(starts[harm] for harm in Harm)} |")
    return HEAD + "\n".join(lines) + "\n" + TAIL


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
