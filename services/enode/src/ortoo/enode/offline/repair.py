"""`ortoo-enode repair DIR`: show what is wrong with a store and what can be done; do it only with `--apply`.

    ortoo-enode repair DIR                              what is wrong with the store
    ortoo-enode repair DIR --caches                     remove index files and the marker; a start makes them
    ortoo-enode repair DIR --identity CLUSTER ENODE     write a new file `identity`
    ortoo-enode repair DIR --without-checkpoint         go on with the state that the remaining segments show
    ortoo-enode repair DIR --cut POSITION               give up the log from there on

Each shows its steps first; with `--apply` it takes them. Nothing else is changed, and no damaged byte is made good:
offsets in damaged places keep answering DATA_LOSS.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ortoo.common.errors import DataLoss, Invalid, OrtooError
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.clean_stop import FILE_NAME as CLEAN_NAME
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.disk.identity import FILE_NAME, Identity, write_identity
from ortoo.enode.disk.reign_file import check_alone
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.disk.tide_mark import FILE_NAME as TIDE_NAME
from ortoo.enode.disk.tide_mark import TideMark, read_tide_mark
from ortoo.enode.disk.whole_files import write_whole
from ortoo.enode.log.frame import FrameHeader
from ortoo.enode.log.scan import walk
from ortoo.enode.log.segment import INDEX_SUFFIX, KEYS_SUFFIX, Segment, bases, segment_name
from ortoo.enode.offline.inspect import inspect
from ortoo.enode.recovery.member_opening import known_end
from ortoo.enode.recovery.opening import marker_of, recover
from ortoo.enode.recovery.restored import FILE_NAME as RESTORED_NAME
from ortoo.enode.recovery.restored import write_restored
from ortoo.enode.recovery.strays import strays_among

OF_A_SET = (
    "the others have what it lacks: empty it and add it anew (`ortoo enode add`, then `remove`); where a majority is "
    "gone, `ortoo-enode elect DIR --lose` goes on with one disk"
)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do, told before it is done."""

    says: str
    do: Callable[[], None]


def main(arguments: Sequence[str]) -> int:
    """Show the steps, and take them with `--apply`. Returns 0; 3 when something is wrong and nothing was done."""
    parser = argparse.ArgumentParser(prog="ortoo-enode repair", description="Mend a store that does not start.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the store's folder; no server may have it open")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--caches", action="store_true", help="remove all files that are made anew at start")
    ways.add_argument("--identity", nargs=2, metavar=("CLUSTER", "ENODE"), help="write a new identity")
    ways.add_argument("--without-checkpoint", action="store_true", help="accept that older state is lost")
    ways.add_argument("--cut", type=int, metavar="POSITION", help="give up everything from this position on")
    parser.add_argument("--apply", action="store_true", help="do it")
    chosen = parser.parse_args(arguments)
    disk, folder = RealDisk(), chosen.folder
    with disk.lock(folder):
        if chosen.caches or chosen.identity or chosen.without_checkpoint or chosen.cut is not None:
            check_alone(disk, folder, OF_A_SET)
        if chosen.caches:
            steps = list(remove_caches(disk, folder))
        elif chosen.identity:
            steps = list(renew_identity(disk, folder, chosen.identity, SystemClock(), Randomness()))
        elif chosen.without_checkpoint:
            steps = list(accept_lost_state(disk, folder))
        elif chosen.cut is not None:
            steps = list(cut_log(disk, folder, chosen.cut))
        else:
            return _diagnose(disk, folder)
        for step in steps:
            sys.stdout.write(("" if chosen.apply else "would: ") + step.says + "\n")
            if chosen.apply:
                step.do()
    if steps and not chosen.apply:
        sys.stdout.write("nothing was changed; add --apply to do it\n")
        return 3
    return 0


def remove_caches(disk: Disk, folder: Path, *, gives_up_end: bool = False) -> Iterator[Step]:
    """Remove every file that is made anew from the log.

    How far that was durable is not, where its end is bad or missing: it stays known as long as there is a log, unless
    that end is given up.
    """
    names, end = disk.list(folder), known_end(disk, folder)
    starts = bases(names)
    if gives_up_end or (end and _are_strays(disk, folder, starts)):
        end = 0
        yield Step(
            f"write {RESTORED_NAME}: who holds a lock, a lease or a transaction of what is given up begins anew",
            partial(write_restored, disk, folder, Randomness()),
        )
    if end > read_tide_mark(disk, folder):
        yield Step(f"write {TIDE_NAME}: the log goes up to position {end}", partial(_mark, disk, folder, end))
    endings, whole = (INDEX_SUFFIX, KEYS_SUFFIX, ".tmp"), (CLEAN_NAME,) if end else (CLEAN_NAME, TIDE_NAME)
    names = [name for name in names if name in whole or name.endswith(endings)]
    for name in names:
        yield Step(f"remove {name}: it is made anew at the next start", partial(disk.remove, folder / name))
    if names:
        yield Step("make the removals durable", lambda: disk.sync_directory(folder))


def _are_strays(disk: Disk, folder: Path, starts: list[int]) -> bool:
    with SegmentFiles(disk) as files:
        return starts == strays_among(files, folder, starts)


def _mark(disk: Disk, folder: Path, end: int) -> None:
    mark = TideMark(disk, folder)
    mark.write(end)
    mark.close()


def renew_identity(
    disk: Disk, folder: Path, owner: Sequence[str], clock: Clock, randomness: Randomness
) -> Iterator[Step]:
    """Write the file that says whose store this is (`owner`: cluster and enode), with a new store id."""
    cluster, enode = owner
    identity = Identity(cluster, enode, randomness.id_text(), clock.now_ms())
    yield Step(
        f"write {FILE_NAME}: enode {enode} of cluster {cluster}, store {identity.store_id}",
        partial(write_identity, disk, folder, identity),
    )


def accept_lost_state(disk: Disk, folder: Path) -> Iterator[Step]:
    """Fold the state from the segments that are left, and let the next start go on from there."""
    with SegmentFiles(disk) as files:
        recovered = recover(files, folder, repairs=False, without_checkpoint=True)
    topics = len(recovered.state.topics.all())
    yield Step("finish what a crash interrupted", lambda: _finish(disk, folder))
    yield Step(
        f"write {CLEAN_NAME}: the state of positions {recovered.catalog.begin_position} to {recovered.end_position} "
        f"alone, {topics} topics; offsets, topics and producers known only from missing segments are forgotten",
        lambda: _leave_marker(disk, folder),
    )


def cut_log(disk: Disk, folder: Path, position: int) -> Iterator[Step]:
    """Remove every segment that begins at or behind `position`, and zero the rest of the one that holds it.

    Errors: Invalid when no frame begins there.
    """
    names = disk.list(folder)
    starts = bases(names)
    holder = next((base for base in reversed(starts) if base <= position), None)
    if holder is None:
        raise Invalid(f"position {position} lies before the log, which begins at {starts[0] if starts else 0}")
    with SegmentFiles(disk) as files:
        segment = Segment(files, folder, holder, holder)
        limit = holder + segment.size_bytes()
        places = [one.position for one in walk(segment.read, holder, limit) if isinstance(one, FrameHeader)]
    if position not in (*places, limit):
        raise Invalid(
            f"no frame begins at position {position}; `ortoo-enode inspect --frames` shows where frames begin"
        )
    yield from remove_caches(disk, folder, gives_up_end=True)
    for base in sorted((one for one in starts if one > holder), reverse=True):
        name = segment_name(base)
        yield Step(f"remove {name}: all its frames are given up", partial(_remove, disk, folder / name))
    name = segment_name(holder)
    yield Step(
        f"overwrite {name} from log position {position} on with zeros: {limit - position} bytes are given up",
        lambda: _zero(disk, folder / name, position - holder, limit - holder),
    )


def _remove(disk: Disk, path: Path) -> None:
    disk.remove(path)
    disk.sync_directory(path.parent)


def _zero(disk: Disk, path: Path, begin: int, end: int) -> None:
    with closing(disk.open(path)) as file:
        file.truncate(begin)
        file.truncate(end)
        file.sync_data()


def _finish(disk: Disk, folder: Path) -> None:
    with SegmentFiles(disk) as files:
        recover(files, folder, without_checkpoint=True)


def _leave_marker(disk: Disk, folder: Path) -> None:
    with SegmentFiles(disk) as files:
        found = recover(files, folder, without_checkpoint=True)
    marker = marker_of(found.catalog, found.state, found.end_position, found.store_open, found.stored_at_ms)
    write_whole(disk, folder / CLEAN_NAME, marker.encoded())


def _diagnose(disk: Disk, folder: Path) -> int:
    """Say what is wrong and what may help."""
    try:
        damages = [line for line in inspect(disk, folder, verify=True) if line["type"] == "damage"]
    except OrtooError as error:
        trouble = "does not start" if isinstance(error, DataLoss) else "cannot be read"
        sys.stdout.write(f"the store {trouble}: {error.message}\n")
        return 3
    for damage in damages:
        sys.stdout.write(
            f"{damage['file']}, log position {damage['position']}, {damage['length_bytes']} bytes: {damage['reason']}\n"
        )
    if damages:
        sys.stdout.write(
            "The store starts and serves everything else; these places answer DATA_LOSS. Damaged bytes come back only "
            "from a copy. Retention removes them with their segments.\n"
        )
        return 3
    sys.stdout.write("nothing is wrong\n")
    return 0
