"""`ortoo-enode repair DIR`: show the damage of a store and the possible steps; do them only with `--apply`.

* `ortoo-enode repair DIR`: show the damage of the store
* `ortoo-enode repair DIR --caches`: remove index files and the marker; a start rebuilds them
* `ortoo-enode repair DIR --identity CLUSTER ENODE`: write a new file `identity`
* `ortoo-enode repair DIR --without-checkpoint`: continue with the state from the remaining segments
* `ortoo-enode repair DIR --cut POSITION`: truncate the log at a position

Each shows its steps first, and executes them with `--apply`. Nothing else is changed, and no damaged byte is restored.
Offsets in damaged places keep answering DATA_LOSS.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ortoo.common.errors import DataLoss, Invalid, OrtooError
from ortoo.common.logs.counts import counted
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.clean_stop import FILE_NAME as CLEAN_NAME
from ortoo.enode.disk.clean_stop import read_clean_stop, write_clean_stop
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.disk.durable_mark import FILE_NAME as TIDE_NAME
from ortoo.enode.disk.durable_mark import DurableMark, read_durable_mark
from ortoo.enode.disk.hard_state_file import read_hard_state, write_hard_state
from ortoo.enode.disk.identity import FILE_NAME, StoreIdentity, read_identity, write_identity
from ortoo.enode.disk.log_begin import FILE_NAME as BEGIN_NAME
from ortoo.enode.disk.log_begin import read_log_begin, write_log_begin
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.disk.slots import SERIALS_NAME
from ortoo.enode.log.frame import FrameHeader, FrameKind
from ortoo.enode.log.scan import walk
from ortoo.enode.log.segment import INDEX_SUFFIX, KEYS_SUFFIX, Segment, segment_bases, segment_name
from ortoo.enode.offline.inspect import inspect
from ortoo.enode.recovery.hard_state import check_files, check_never_of_a_set, check_only_replica
from ortoo.enode.recovery.only_copy import make_clean_stop, recover
from ortoo.enode.recovery.opening import durable_end
from ortoo.enode.recovery.restored import FILE_NAME as RESTORED_NAME
from ortoo.enode.recovery.restored import write_mark, write_restored_mark
from ortoo.enode.recovery.strays import find_strays

ANY_TAG = 0
REPLICA_ADVICE = (
    "the other replicas have its data. Empty it and add it again (`ortoo enode add`, then `remove`). After the loss of "
    "a majority, `ortoo-enode elect DIR --lose` continues with one disk"
)


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One step, which is printed before it is executed."""

    text: str
    run: Callable[[], None]


def main(arguments: Sequence[str]) -> int:
    """Show the steps, and execute them with `--apply`. Returns 0; 3 when there is damage and nothing was done."""
    parser = argparse.ArgumentParser(prog="ortoo-enode repair", description="Repair a store that does not start.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the store's folder; no server may have it open")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--caches", action="store_true", help="remove all files that a start rebuilds")
    ways.add_argument("--identity", nargs=2, metavar=("CLUSTER", "ENODE"), help="write a new identity")
    ways.add_argument("--without-checkpoint", action="store_true", help="accept the loss of state in missing segments")
    ways.add_argument("--cut", type=int, metavar="POSITION", help="truncate the log at this position")
    parser.add_argument("--apply", action="store_true", help="change the store; without it only print the plan")
    chosen = parser.parse_args(arguments)
    disk, folder = RealDisk(), chosen.folder
    with disk.lock(folder):
        if chosen.caches or chosen.identity or chosen.without_checkpoint or chosen.cut is not None:
            if read_hard_state(disk, folder) is None:
                check_never_of_a_set(disk, folder)
            check_only_replica(disk, folder, REPLICA_ADVICE)
        clock, randomness = SystemClock(), Randomness()
        if chosen.caches:
            steps = list(remove_caches(disk, folder, clock, randomness))
        elif chosen.identity:
            steps = list(renew_identity(disk, folder, chosen.identity, clock, randomness))
        elif chosen.without_checkpoint:
            steps = list(accept_lost_state(disk, folder))
        elif chosen.cut is not None:
            steps = list(cut_log(disk, folder, chosen.cut, clock, randomness))
        else:
            return _diagnose(disk, folder)
        for step in steps:
            sys.stdout.write(("" if chosen.apply else "would: ") + step.text + "\n")
            if chosen.apply:
                step.run()
    if steps and not chosen.apply:
        sys.stdout.write("nothing was changed; add --apply to do it\n")
        return 3
    return 0


def remove_caches(
    disk: Disk, folder: Path, clock: Clock, randomness: Randomness, *, discards_end: bool = False
) -> Iterator[RepairStep]:
    """Remove every file that is rebuilt from the log.

    The durable position cannot be rebuilt from a damaged or missing end. So the durable mark stays while there is a
    log, unless `discards_end`.
    """
    names, end, hard_state = disk.list(folder), durable_end(disk, folder), read_hard_state(disk, folder)
    starts, has_voted = segment_bases(names), hard_state is not None and hard_state.hard_state.epoch > 0
    leftovers = [name for name in names if name.endswith((INDEX_SUFFIX, KEYS_SUFFIX, ".tmp"))]
    yield from _removals(disk, folder, leftovers)  # before a write through one of them
    if discards_end or ((end or has_voted) and _are_strays(disk, folder, starts)):
        end = 0
        yield RepairStep(
            f"write {RESTORED_NAME}: the locks, leases and transactions of the removed end become invalid, and the "
            "store gets another id",
            partial(_begin_anew, disk, folder, clock, randomness),
        )
    if end > read_durable_mark(disk, folder):
        yield RepairStep(
            f"write {TIDE_NAME}: the log ends at position {end}", partial(_write_durable_mark, disk, folder, end)
        )
    whole = (CLEAN_NAME,) if end else (CLEAN_NAME, TIDE_NAME)
    yield from _removals(disk, folder, [name for name in names if name in whole])


def _begin_anew(disk: Disk, folder: Path, clock: Clock, randomness: Randomness) -> None:
    """Mark a store whose log loses its end, and give it another id, made from its former one.

    Name servers refuse a shorter log under the former id. A store that was not started since its last mark keeps its
    id. After an interruption the next start completes the change of the id.
    """
    identity, stored = read_identity(disk, folder), read_hard_state(disk, folder)
    if identity is None or identity.begins_anew:
        write_restored_mark(disk, folder, randomness)
        return
    write_mark(disk, folder, randomness)
    renewed = replace(identity.renewed(randomness.id_text(), clock.now_ms()), begins_anew=True)
    if stored is not None:
        renewed_state = replace(
            stored, set_id=renewed.store_id, created_at_ms=renewed.created_at_ms, made_from=renewed.made_from
        )
        write_hard_state(disk, folder, renewed_state)
    write_identity(disk, folder, renewed)


def _removals(disk: Disk, folder: Path, names: Sequence[str]) -> Iterator[RepairStep]:
    for name in names:
        yield RepairStep(f"remove {name}: the next start rebuilds it", partial(disk.remove, folder / name))
    if names:
        yield RepairStep("make the removals durable", lambda: disk.sync_directory(folder))


def _are_strays(disk: Disk, folder: Path, starts: list[int]) -> bool:
    with SegmentFiles(disk) as files:
        return starts == find_strays(files, folder, starts)


def _write_durable_mark(disk: Disk, folder: Path, end: int) -> None:
    mark = DurableMark(disk, folder)
    mark.write(end, end)
    mark.close()


def renew_identity(
    disk: Disk, folder: Path, owner: Sequence[str], clock: Clock, randomness: Randomness
) -> Iterator[RepairStep]:
    """Write the store's identity (`owner`: cluster and enode), with the id of its set, or with a new store id.

    The other small files have a tag from the id, so those that are not caches are written again.
    """
    cluster, enode = owner
    names, mark = disk.list(folder), _log_mark(disk, folder)
    begin, clean = read_log_begin(disk, folder, ANY_TAG), read_clean_stop(disk, folder, ANY_TAG)
    end = max(read_durable_mark(disk, folder, ANY_TAG), clean.end_position if clean is not None else 0)
    log = f"{mark:016x}" if mark else ""
    stored, store_id, now_ms = read_hard_state(disk, folder), randomness.id_text(), clock.now_ms()
    begins_anew = RESTORED_NAME in names
    identity = StoreIdentity(cluster, enode, store_id, now_ms, log=log, begins_anew=begins_anew)
    if stored is not None:  # it belongs to its hard state
        identity = replace(
            identity, store_id=stored.set_id, created_at_ms=stored.created_at_ms, disk=stored.replica.disk
        )
    yield RepairStep(
        f"write {FILE_NAME}: enode {enode} of cluster {cluster}, store {identity.store_id}",
        partial(write_identity, disk, folder, identity),
    )
    for name in (one for one in names if one in (CLEAN_NAME, SERIALS_NAME, TIDE_NAME)):
        yield RepairStep(f"remove {name}: it belongs to the previous identity", partial(disk.remove, folder / name))
    if begin is not None:
        yield RepairStep(f"write {BEGIN_NAME} again, for this identity", partial(write_log_begin, disk, folder, begin))
    if end:
        yield RepairStep(f"write {TIDE_NAME} again, for this identity", partial(_write_durable_mark, disk, folder, end))


def _log_mark(disk: Disk, folder: Path) -> int:
    """The fingerprint in the newest frames of a log; 0 without one."""
    for base in reversed(segment_bases(disk.list(folder))):
        with SegmentFiles(disk) as files:
            segment = Segment(files, folder, base, base)
            frames = walk(segment.read, base, base + segment.size_bytes())
            marks = [
                one.producer_id for one in frames if isinstance(one, FrameHeader) and one.kind != FrameKind.MESSAGES
            ]
        if marks:
            return marks[-1]
    return 0


def accept_lost_state(disk: Disk, folder: Path) -> Iterator[RepairStep]:
    """Fold the state from the remaining segments, and write a marker from which the next start continues."""
    with SegmentFiles(disk) as files:
        recovered = recover(files, folder, repairs=False, without_checkpoint=True)
    topics = len(recovered.state.topics.all())
    yield RepairStep("finish the recovery after a crash", lambda: _finish_recovery(disk, folder))
    yield RepairStep(
        f"write {CLEAN_NAME}: the state of positions {recovered.catalog.begin_position} to {recovered.end_position} "
        f"alone, {counted(topics, 'topic')}; offsets, topics and producers known only from missing segments are "
        "forgotten",
        lambda: _leave_marker(disk, folder),
    )


def cut_log(disk: Disk, folder: Path, position: int, clock: Clock, randomness: Randomness) -> Iterator[RepairStep]:
    """Remove every segment that begins at or behind `position`, and zero the rest of the one that contains it.

    Errors: Invalid when no frame begins there.
    """
    names = disk.list(folder)
    starts = segment_bases(names)
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
    yield from remove_caches(disk, folder, clock, randomness, discards_end=True)
    for base in sorted((one for one in starts if one > holder), reverse=True):
        name = segment_name(base)
        yield RepairStep(f"remove {name}: all its frames are lost", partial(_remove, disk, folder / name))
    name = segment_name(holder)
    yield RepairStep(
        f"overwrite {name} from log position {position} on with zeros: {limit - position} bytes are lost",
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


def _finish_recovery(disk: Disk, folder: Path) -> None:
    with SegmentFiles(disk) as files:
        recover(files, folder, without_checkpoint=True)


def _leave_marker(disk: Disk, folder: Path) -> None:
    with SegmentFiles(disk) as files:
        found = recover(files, folder, without_checkpoint=True)
    marker = make_clean_stop(found.catalog, found.state, found.end_position, found.store_open, found.stored_at_ms)
    write_clean_stop(disk, folder, marker)


def _diagnose(disk: Disk, folder: Path) -> int:
    """Print the damage and the possible remedies."""
    try:
        damages = [line for line in inspect(disk, folder, verify=True) if line["type"] == "damage"]
        if (stored := read_hard_state(disk, folder)) is not None:
            check_files(disk, folder, stored)
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
            "The store starts and serves all other data; these places answer DATA_LOSS. Damaged bytes can be restored "
            "only from a copy. Retention removes them with their segments.\n"
        )
        return 3
    sys.stdout.write("nothing is wrong\n")
    return 0
