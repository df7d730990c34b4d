"""`ortoo-enode elect DIR --lose`: continue with one disk after the permanent loss of the majority of a set's disks.

* `ortoo-enode elect DIR --lose`: show the contents of the disk, and the planned steps
* `ortoo-enode elect DIR --lose --apply`: do it; no process may have the folder open

First it asks the name servers and all addresses that they or the replica's settings list (the environment, or -c FILE).
If another replica runs, it may be part of a serving majority, so the command refuses. --others-are-gone overrides this.

A disk without its hard state (the file `reign`) can be used, too, because its new set does not need its votes.

The disk becomes a new set of one replica, with its whole log. Data that other replicas acknowledged behind its end is
lost, and so is data that this disk itself had and lost. Disks of the previous set are refused
from then on: empty them, and add them as new replicas.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ortoo.common.errors import DataLoss, Invalid
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.disk.hard_state_file import FILE_NAME as REIGN_NAME
from ortoo.enode.disk.hard_state_file import StoredHardState, read_hard_state, read_serial, write_hard_state
from ortoo.enode.disk.identity import read_identity, write_identity
from ortoo.enode.disk.log_summary_file import FILE_NAME as OUTLINE_NAME
from ortoo.enode.disk.log_summary_file import StoredLogSummary, read_log_summary, write_log_summary
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.segment import segment_bases
from ortoo.enode.recovery.hard_state import summary_of_files
from ortoo.enode.recovery.opening import last_copy_end, recover_replica
from ortoo.enode.recovery.restored import write_mark
from ortoo.enode.replication.protocol.identity import Configuration, ReplicaId, Tail
from ortoo.enode.replication.protocol.log_summary import ConfigurationFrame
from ortoo.enode.rpc.replicas.living_set import check_no_living_set
from ortoo.enode.settings import load


@dataclass(frozen=True, slots=True)
class Survivor:
    """The one remaining disk, from its files."""

    stored: StoredHardState
    summary: StoredLogSummary
    enode: str
    lost: str = ""
    """The file that is lost or refused, and the reason; empty = none."""

    def describe(self, end: int) -> str:
        """The contents and the losses, as text. The log ends at `end`."""
        kept, voters = self.stored, self.summary.summary.configuration.voters
        former = ", ".join(str(one.number) for one in voters) or "unknown"
        lines = [
            f"replica {kept.replica.number} of set {kept.set_id} (voters at its last start: {former}) has voted in "
            f"epoch {kept.hard_state.epoch}",
            f"its log ends at position {end}. Later data that the other replicas acknowledged is lost. "
            "`ortoo enode replicas ENODE` shows the last reported position of each replica",
        ]
        if self.lost:
            lines.insert(0, f"the vote of the disk is unknown ({self.lost}); its new set does not need it")
        if kept.hard_state.unsynced_tail.position > end:
            lines.append(
                f"this disk itself once had the log up to position {kept.hard_state.unsynced_tail.position}; the "
                "rest is lost, too"
            )
        return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Show the losses, and continue without the lost data with `--apply`. Returns 0; 3 when nothing was done."""
    parser = argparse.ArgumentParser(prog="ortoo-enode elect", description="Continue with one disk of a replica set.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the replica's folder; no server may have it open")
    parser.add_argument("--lose", action="store_true", required=True, help="accept that data of other disks is lost")
    parser.add_argument("--apply", action="store_true", help="do it")
    parser.add_argument("-c", dest="file", type=Path, metavar="FILE", help="the replica's settings file, TOML")
    parser.add_argument(
        "--others-are-gone", action="store_true", help="do it although another replica answers, or cannot be asked"
    )
    chosen = parser.parse_args(arguments)
    disk, folder = RealDisk(), chosen.folder
    with disk.lock(folder):
        settings = load(os.environ, file=chosen.file, overrides={}).settings
        found = read_survivor(disk, folder, settings.replica)
        sys.stdout.write(found.describe(last_copy_end(disk, folder, found.summary)))
        if not chosen.apply:
            sys.stdout.write("nothing was changed; add --apply to continue with this disk alone\n")
            return 3
        is_alone = found.summary.summary.configuration.voters == (found.stored.replica,)
        if not chosen.others_are_gone and not is_alone:
            kept = found.stored
            asyncio.run(check_no_living_set(found.enode, kept.set_id, kept.replica, settings, SystemClock()))
        end = become_single_replica(disk, folder, SystemClock(), Randomness(), settings.replica)
        sys.stdout.write(f"it is a set of one replica now, with the log up to {end}: start it, then add empty disks\n")
    return 0


def read_survivor(disk: Disk, folder: Path, number: int = 1) -> Survivor:
    """The replica of a folder. `number` is used if the folder does not have the replica's number.

    Errors: DataLoss, Unsupported. Invalid when there is no replica, or its set was never initialized.
    """
    identity, lost = read_identity(disk, folder), ""
    try:
        stored = read_hard_state(disk, folder)
        if stored is None and identity is not None and identity.has_hard_state:
            lost = f"the file {REIGN_NAME} is missing"
    except DataLoss as error:
        stored, lost = None, error.message
    try:
        summary = read_log_summary(disk, folder)
    except DataLoss as error:
        summary, lost = None, error.message
    if stored is None and identity is not None and identity.has_hard_state:
        known = summary.summary.configuration.replicas if summary is not None else ()
        number = next((one.number for one in known if one.disk == identity.disk), number)
        start, _ = read_serial(disk, folder)
        stored = StoredHardState(ReplicaId(number, identity.disk), identity.store_id, identity.created_at_ms, start)
    if stored is None or not stored.set_id or (summary is None and not segment_bases(disk.list(folder))):
        raise Invalid(f"{folder} is not the folder of a replica of an initialized set, so it cannot be elected")
    if summary is None:
        lost, summary = lost or f"the file {OUTLINE_NAME} is missing", summary_of_files(disk, folder, stored.replica)
    return Survivor(stored, summary, identity.enode if identity is not None else "", lost)


def become_single_replica(disk: Disk, folder: Path, clock: Clock, randomness: Randomness, number: int = 1) -> int:
    """Make the disk a set of one replica; returns the end of its log. Errors: Invalid, DataLoss, OSError.

    The mark of a store that lost its end is written first, then the new set's id, in the hard state and the identity.
    From then on no replica of the previous set talks to this disk, so its own vote is used only within its new set.
    After an interruption anywhere, the command can be repeated. The identity records the new id and the mark in one
    write, so `made_from` stays the id of the last set that was started.
    """
    survivor = read_survivor(disk, folder, number)
    last_copy_end(disk, folder, survivor.summary)  # before any change
    if survivor.lost and REIGN_NAME in disk.list(folder):
        disk.remove(folder / REIGN_NAME)
    with SegmentFiles(disk) as files:
        log = recover_replica(files, folder, survivor.summary, is_last_copy=True)
    reign, former, identity = survivor.stored.hard_state, survivor.stored, read_identity(disk, folder)
    set_id, now_ms = randomness.id_text(), clock.now_ms()
    renewed = identity.renewed(set_id, now_ms, former.replica.disk) if identity is not None else None
    write_mark(disk, folder, randomness)
    stored = replace(
        former,
        set_id=set_id,
        created_at_ms=now_ms,
        is_founder=True,
        hard_state=replace(reign, epoch=max(reign.epoch, log.summary.history.last_epoch), unsynced_tail=Tail(0, 0)),
        made_from=renewed.made_from if renewed is not None else former.set_id,
    )
    write_hard_state(disk, folder, stored)
    if renewed is not None:
        write_identity(disk, folder, replace(renewed, begins_anew=True))
    alone = ConfigurationFrame(log.summary.appended, Configuration((stored.replica,)))
    write_log_summary(disk, folder, StoredLogSummary.from_summary(replace(log.summary, configurations=(alone,))))
    return log.summary.appended
