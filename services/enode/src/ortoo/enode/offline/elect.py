"""`ortoo-enode elect DIR --lose`: go on with one disk when the majority of a set's disks is gone for good.

    ortoo-enode elect DIR --lose                what the disk has, and what would be done
    ortoo-enode elect DIR --lose --apply        do it; no process may have the folder open

Before it does it asks the others, which the member's settings tell (the environment, or -c FILE): while one of
them answers, they may be a majority that goes on. --others-are-gone does it all the same.

The disk becomes a set of its own, of one member, with all of the log that it has. What others had acknowledged with
each other behind its end is lost, and so is what this disk itself had and lost. Disks of the former set are refused
from then on: empty them, and add them as new members.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ortoo.common.errors import Conflict, Invalid
from ortoo.common.grpc.cluster_token import cluster_channels, cluster_token
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.disk.identity import read_identity, write_identity
from ortoo.enode.disk.outline_file import KeptOutline, read_outline, write_outline
from ortoo.enode.disk.reign_file import KeptReign, read_reign, write_reign
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.members.identity import Configuration, Tail
from ortoo.enode.members.log_outline import MembersFrame
from ortoo.enode.recovery.member_opening import known_end, recover_member, whole_end
from ortoo.enode.recovery.restored import write_restored
from ortoo.enode.rpc.members.peers import is_of_set
from ortoo.enode.settings import Settings, load


@dataclass(frozen=True, slots=True)
class Survivor:
    """The one disk that is left, as its files tell."""

    kept: KeptReign
    outline: KeptOutline

    def said(self, end: int, flushed: int = 0) -> str:
        """What there is, and what it costs to go on with it. The disk has everything below `end`, and had `flushed`."""
        kept, voters = self.kept, self.outline.outline.members.voters
        former = ", ".join(str(one.number) for one in voters) or "none that are known"
        lines = [
            f"member {kept.member.number} of set {kept.set_id} (voters at its last start: {former}) has promised epoch "
            f"{kept.reign.epoch}",
            f"its log ends at position {end}: whatever a majority without it has acknowledged behind that is lost; "
            "`ortoo enode members ENODE` shows how far each of the others was when it reported last",
        ]
        if kept.reign.owed.position > end:
            lines.append(
                f"this disk itself once was at position {kept.reign.owed.position}: what lies between is lost, too"
            )
        if flushed > end:
            lines.append(
                f"it is damaged there: what lies behind, up to position {flushed}, is lost, and --apply takes it away; "
                "copy the folder first"
            )
        return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Show what would be lost, and go on without it with `--apply`. Returns 0; 3 when nothing was done."""
    parser = argparse.ArgumentParser(prog="ortoo-enode elect", description="Go on with one disk of a set of members.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the member's folder; no server may have it open")
    parser.add_argument("--lose", action="store_true", required=True, help="accept that what only others have is lost")
    parser.add_argument("--apply", action="store_true", help="do it")
    parser.add_argument("-c", dest="file", type=Path, metavar="FILE", help="the member's settings file, TOML")
    parser.add_argument(
        "--others-are-gone", action="store_true", help="do it although another member answers, or cannot be asked"
    )
    chosen = parser.parse_args(arguments)
    disk, folder = RealDisk(), chosen.folder
    with disk.lock(folder):
        found = survivor(disk, folder)
        sys.stdout.write(found.said(whole_end(disk, folder, found.outline), known_end(disk, folder)))
        if not chosen.apply:
            sys.stdout.write("nothing was changed; add --apply to go on with this disk alone\n")
            return 3
        if not chosen.others_are_gone:
            settings = load(os.environ, file=chosen.file, overrides={}).settings
            asyncio.run(check_others(found, settings, SystemClock()))
        end = go_on_alone(disk, folder, SystemClock(), Randomness())
        sys.stdout.write(f"it is a set of one member now, with the log up to {end}: start it, then add empty disks\n")
    return 0


def survivor(disk: Disk, folder: Path) -> Survivor:
    """What a folder says of its member. Errors: Invalid when it is none, or its set never began."""
    kept, outline = read_reign(disk, folder), read_outline(disk, folder)
    if kept is None or outline is None or not kept.set_id:
        raise Invalid(f"{folder} is not the folder of a member whose set has begun; nothing is to be elected there")
    return Survivor(kept, outline)


async def check_others(found: Survivor, settings: Settings, clock: Clock) -> None:
    """Ask every address of the settings for the set. Errors: Conflict when one answers; Invalid when nobody is known.

    Who is silent may still live behind a broken network: that only the operator knows.
    """
    kept, voters = found.kept, found.outline.outline.members.voters
    if voters == (kept.member,):
        return
    if not settings.member_address_list:
        raise Invalid(
            "nobody knows where the other members are, to ask whether they are gone: give the member's settings "
            "(-c FILE, or ORTOO_ENODE_MEMBER_ADDRESSES), or say --others-are-gone",
            field="member_addresses",
        )
    async with cluster_channels(settings, cluster_token(settings.cluster_token_file, clock)) as channels:
        for address in settings.member_address_list:
            if await is_of_set(address, kept.set_id, kept.member, channels):
                raise Conflict(
                    f"a member of set {kept.set_id} answers at {address}: if it leads with others, two sets would go "
                    "on from here. Stop it first, or, if its disk is lost as well, say --others-are-gone",
                    field="member_addresses",
                )


def go_on_alone(disk: Disk, folder: Path, clock: Clock, randomness: Randomness) -> int:
    """Make the disk a set of its own; where its log ends. Errors: Invalid, DataLoss, OSError.

    The set's new id is written first: from then on nobody of the former set speaks with this disk, so that it votes
    alone only when it is heard by itself alone. Interrupted anywhere, it is done by doing it again.
    """
    found = survivor(disk, folder)
    whole_end(disk, folder, found.outline)  # before anything is taken away
    with SegmentFiles(disk) as files:
        log = recover_member(files, folder, found.outline, is_last=True)
    write_restored(disk, folder, randomness)
    kept = replace(
        found.kept,
        set_id=randomness.id_text(),
        created_at_ms=clock.now_ms(),
        is_founder=True,
        reign=replace(found.kept.reign, owed=Tail(0, 0)),
    )
    write_reign(disk, folder, kept)
    if (identity := read_identity(disk, folder)) is not None:
        now = replace(identity, store_id=kept.set_id, created_at_ms=kept.created_at_ms)
        write_identity(disk, folder, now)
    alone = MembersFrame(log.outline.appended, Configuration((kept.member,)))
    write_outline(disk, folder, KeptOutline.of(replace(log.outline, placed=(alone,))))
    return log.outline.appended
