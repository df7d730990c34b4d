"""Every file of a store: its content, and the behaviour of a start without it. The page and the tests use this table.

python -m tests.store_files docs/formats/files.md
"""

import enum
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.enode.log.frame import HEADER_BYTES, FrameHeader, FrameKind
from ortoo.enode.log.scan import walk


class Harm(enum.StrEnum):
    """A harm to a file while no process has the store open."""

    DELETED = "deleted"
    EMPTIED = "emptied"
    OLDER = "older copy"
    FOREIGN = "of another store"


class Start(enum.StrEnum):
    """The behaviour of the next starts."""

    RIGHT = "starts right"
    REFUSED = "refuses"
    NAMED = "names the loss"
    ABSENT = "-"
    """This kind of store has no such file."""


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
    """A regular expression for the names of its files."""
    holds: str
    may_be_missing: str
    without: str
    """The behaviour of a start without it."""
    alone: Mapping[Harm, Start] = field(default_factory=lambda: ALWAYS_RIGHT)
    """In a store of an enode without replicas."""
    replicas: Mapping[Harm, Start] = field(default_factory=lambda: ALWAYS_RIGHT)
    """In the store of one of three replicas."""


def outcomes(most: Start, **others: Start) -> Mapping[Harm, Start]:
    """The outcome for every harm, with exceptions by the name of the harm."""
    return dict.fromkeys(Harm, most) | {Harm[name.upper()]: start for name, start in others.items()}


FILES = (
    StoreFile(
        "`identity`",
        r"identity",
        "The identity of the store: cluster, enode, store id, the disk id of a replica, and whether it has hard state.",
        "no",
        "Refuses. A folder without any file becomes a new store. Name servers that know the enode refuse this store.",
        outcomes(Start.REFUSED, older=Start.RIGHT),
        outcomes(Start.REFUSED, older=Start.RIGHT),
    ),
    StoreFile(
        "`reign`",
        r"reign",
        "The hard state of the replica: its number, disk id, set and vote. Also the former end of the log if the "
        "disk has lost it (`owed`), and the start counter with its random part.",
        "no",
        "Refuses, because a replica without its vote could vote twice. An older copy is recognized by `serials`. "
        "Without other replicas the file does not change after the first start, so an older copy equals it. A store of "
        "an earlier version, or of a backup, has none before its first start.",
        outcomes(Start.REFUSED, older=Start.RIGHT),
        REFUSED,
    ),
    StoreFile(
        "`outline`",
        r"outline",
        "The log summary of the replica: epochs, the replicas of the set, a truncation in progress.",
        "no",
        "Refuses, because no other file has the first replicas of a set. An older copy is recognized by `serials`; it "
        "may contain a truncation that was completed long ago.",
        REFUSED,
        REFUSED,
    ),
    StoreFile(
        LAST_SEGMENT,
        r"\d{20}\.seg",
        "The segment to which the log is appended: messages, state changes, checkpoints, and the count of openings.",
        "only with other replicas",
        "A replica fetches the missing frames from the other replicas, and leads only when it has them. Without "
        "replicas, reads of the segment's offsets are answered DATA_LOSS, and the offsets are not assigned again. If "
        "the file is cut short, the store continues with the rest of the file, under another store id.",
        outcomes(Start.NAMED, foreign=Start.REFUSED),
        outcomes(Start.RIGHT, foreign=Start.REFUSED),
    ),
    StoreFile(
        FULL_SEGMENT,
        r"\d{20}\.seg",
        "A full segment of the log.",
        "only with other replicas",
        "A replica fetches a missing frame from the other replicas when the frame is read, or when a start computes "
        "the state from it. Without replicas, reads of the segment's offsets are answered DATA_LOSS.",
        outcomes(Start.NAMED),
        outcomes(Start.RIGHT),
    ),
    StoreFile(
        "`<position>.idx`",
        r"\d{20}\.idx",
        "The queue index of a full segment.",
        "yes",
        "Rebuilds the index from the segment.",
    ),
    StoreFile(
        "`<position>.keys`",
        r"\d{20}\.keys",
        "The key index of a full segment.",
        "yes",
        "Continues without the index; the next search rebuilds it from the segment.",
    ),
    StoreFile(
        "`begin`",
        r"begin",
        "The begin of the log after retention, and the first offset of each queue.",
        "yes",
        "Takes the position from `serials`, and the offsets from the segments.",
    ),
    StoreFile(
        "`clean`",
        r"clean",
        "The marker of a clean stop: the state and the index of the last segment.",
        "yes",
        "Reads the last segment, and computes the state from the newest checkpoint and the log behind it.",
    ),
    StoreFile(
        "`durable`",
        r"durable",
        "The durable and the committed position when the store last became idle. Marks in the log also record the "
        "durable position.",
        "yes",
        "Uses only the marks in the log. Damage to the newest frames may be taken for a torn end.",
    ),
    StoreFile(
        "`serials`",
        r"serials",
        "The numbers of the last writes of `reign`, `outline` and `begin`, by which older copies of these files are "
        "recognized.",
        "yes",
        "Writes `serials` again with the next write of `reign`, `outline` or `begin`; until then an older copy of them "
        "is not recognized.",
    ),
    StoreFile(
        "`restored`",
        r"restored",
        "The mark of a store whose log ends before data that clients may have seen. The next start raises the "
        "numbers of leases, locks, transactions and delayed messages above those that clients may hold, and removes "
        "the mark.",
        "no",
        "Refuses if `identity` requires `restored`. Then repeat the command that made the store, such as a restore.",
        outcomes(Start.RIGHT, deleted=Start.REFUSED, emptied=Start.REFUSED),
        NEVER_THERE,
    ),
    StoreFile(
        "`cut-<epoch>-<position>`",
        r"cut-\d+-\d+",
        "Frames that a replica has truncated from its log, because the leader does not have them.",
        "yes",
        "Starts in the same way as with the file. Only operators need the file.",
        NEVER_THERE,
        ALWAYS_RIGHT,
    ),
    StoreFile(
        "`reserve`",
        "reserve",
        "Zeros. A replica that others can reach shortens the file on a full disk, so that it can still write its vote.",
        "yes",
        "Makes the reserve again, if the disk has space.",
        NEVER_THERE,
    ),
    StoreFile(
        "`<number>.spare`",
        r"\d+\.spare",
        "A future segment: zeros, or a deleted segment.",
        "yes",
        "Allocates another spare.",
    ),
    StoreFile(
        "`*.tmp`", r".*\.tmp", "A small file that is being written.", "yes", "Starts in the same way as with it."
    ),
)

HEAD = """# Every file of a store

For contributors: the files of a store, and the behaviour of a start when one of them is lost.
[The log of an enode](log.md) has the formats, and [crash safety](crash-safety.md) the reasons.
`python -m tests.store_files docs/formats/files.md` writes this page; the tests of lost files use the same table.

A store is one folder. If a file is missing, later starts behave like the first start without it. A
refused start changes nothing, and names the file and the remedy. The start succeeds when the file is put back. A lost
file never causes a message to be taken for another one, or a store id to be used for two different histories.

A process locks the folder itself, so there is no lock file. Checkpoints, topics, offsets and the list of replicas
are frames of the log. A running process detects at its next flush, or within a second, that its folder was moved,
replaced or emptied. From then on the process acknowledges nothing, and `ortoo doctor` reports `data folder missing`.

*Starts right* means that the store starts with all acknowledged data. *Names the loss* means that the start reports the
file and the positions. Reads of the file's offsets are then answered DATA_LOSS, and all other data is served. Only
segments of an enode without replicas can be lost in this way, because no other process has a copy of
them.

"""
TAIL = """
If a replica refuses to start, empty its disk and [admit it as a new replica](../operations/replicas.md); no data
is lost.

No file shows that a whole disk was restored from an older image. But the number of each start has random bits, so a
start from such a disk gets a number that no earlier start had. Votes and messages for an earlier start do not count for
the new start. A name server that knows a later start of the disk refuses the replica. No other replica truncates
messages that it knows to be committed. Never start a replica with such a disk: empty the disk.

An enode without replicas reports the number of its start and the ends of its log to the name servers. They refuse a
start that found a shorter log than an earlier start had reported ([older
copies](../operations/backups.md#older-copies-of-a-store)).
"""


def names_of(row: StoreFile, names: Sequence[str]) -> list[str]:
    """The files of a store that belong to a row."""
    found = sorted(name for name in names if re.fullmatch(row.pattern, name))
    if not row.pattern.endswith("seg"):
        return found
    return found[-1:] if row.name == LAST_SEGMENT else found[:-1]


def undescribed(names: Sequence[str]) -> list[str]:
    """The files of a store that belong to no row."""
    return [name for name in names if not any(re.fullmatch(row.pattern, name) for row in FILES)]


def of_another_log(data: bytes, base: int) -> bytes:
    """The segment of another store at this position: whole frames of other topics, with its fingerprint."""
    found = bytearray(data)
    for one in walk(lambda at, length: data[at - base : at - base + length], base, base + len(data)):
        if isinstance(one, FrameHeader):
            is_message = one.kind == FrameKind.MESSAGES
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
