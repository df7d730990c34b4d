"""How a set of members begins, and how an empty disk becomes a part of one.

The first configuration is made once, by member 1, and only when every member that it names has agreed: each disk
writes down, before it answers, that it is of this set, and is of no other from then on. So of two processes that both
begin a set with the same disks at most one hears yes from all, and a set whose founder forgot it cannot begin again
beside itself: the other disks say no. A founder that loses its disk before the set has begun needs the others' folders
emptied; nothing was acknowledged by then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from ortoo.common.errors import Conflict, DataLoss, OrtooError, Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.enode import log_events
from ortoo.enode.disk.disk import Disk, NoDescriptor
from ortoo.enode.disk.identity import read_identity
from ortoo.enode.disk.log_begin import read_log_begin
from ortoo.enode.disk.outline_file import KeptOutline, read_outline, write_outline
from ortoo.enode.disk.reign_file import KeptReign, read_reign, write_reign
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.enode.log.segment import bases
from ortoo.enode.members.identity import Configuration, MemberId, Reign
from ortoo.enode.members.log_outline import LogOutline, MembersFrame
from ortoo.enode.recovery.restored import read_apart

ASK_INTERVAL_S = 0.5
NO_DESCRIPTOR_S = 0.5
"""How long a promise waits before it is written again, when no file could be opened for it."""
_log = get_logger("members")


Ask = Callable[[str, str, int, bool], Awaitable[MemberId]]
"""Asks the member at an address to be of (set id, made at), or only whether it would be: who it is.

Errors: Conflict when it is of another.
"""


@dataclass(eq=False)
class Joining:
    """Who this member is, and of which set. Its folder is this process's alone."""

    disk: Disk
    folder: Path
    clock: Clock
    randomness: Randomness
    number: int = 1
    """Which member this process is, 1 or more."""
    members: int = 1
    """With how many voters the set begins."""
    addresses: tuple[str, ...] = ()
    """Member addresses of all of them, by number; only the founder needs them."""
    kept: KeptReign = field(init=False)
    """As it is on disk."""

    def __post_init__(self) -> None:
        """Read who this is; an empty folder becomes a member of its own. Errors: Conflict, DataLoss, OSError."""
        kept = read_reign(self.disk, self.folder)
        if kept is None:
            kept = self._claimed()
        if kept.member.number != self.number:
            raise Conflict(
                f"{self.folder} is that of member {kept.member.number}, and this is member {self.number}: "
                "choose another folder or correct the settings",
                field="member",
            )
        self.kept = kept
        self._joined = asyncio.Event()
        if kept.set_id:
            self._joined.set()

    async def keep_reign(self, reign: Reign, work: DiskWork) -> bool:
        """Write a promise to disk; False, after a pause, when no file can be opened for it now. Errors: OSError."""
        kept = replace(self.kept, reign=reign)
        try:
            await work.run(write_reign, self.disk, self.folder, kept)
        except NoDescriptor as error:
            _log.emit(log_events.HARD_STATE_POSTPONED, epoch=reign.epoch, reason=error.message)
            await self.clock.sleep(NO_DESCRIPTOR_S)
            return False
        self.kept = kept
        return True

    def _claimed(self) -> KeptReign:
        """A folder that is no member's: an enode's of before there were members, or empty."""
        member = MemberId(self.number, self.randomness.id_text())
        identity = read_identity(self.disk, self.folder)
        if identity is None:
            kept = KeptReign(member)
        elif member.number != 1:
            # It may be a copy of the log that member 1 goes on with; two sets of one would both lead.
            raise Conflict(
                f"{self.folder} holds the log of an enode that was no member: start it as member 1, or empty it",
                field="member",
            )
        elif read_apart(self.disk, self.folder):
            # What its first start puts into the log is decided before there are others.
            raise Conflict(
                f"{self.folder} was restored and not started since: start it once without members, stop it, then start "
                "it as member 1",
                field="member",
            )
        else:
            begin = read_log_begin(self.disk, self.folder)
            position = begin.position if begin else 0
            alone = MembersFrame(position, Configuration((member,)))
            outline = LogOutline(position, position, position, position, placed=(alone,))
            write_outline(self.disk, self.folder, KeptOutline(outline))
            kept = KeptReign(member, identity.store_id, identity.created_at_ms)
        write_reign(self.disk, self.folder, kept)
        return kept

    async def join(self, set_id: str, created_at_ms: int, *, asks_only: bool = False) -> MemberId:
        """Be of a set from now on, unless that is only asked.

        Errors: Conflict when this disk is of another; Unavailable when it fails.
        """
        if self.kept.set_id and self.kept.set_id != set_id and not self._may_leave():
            raise Conflict(
                f"member {self.kept.member.number} is of set {self.kept.set_id}: its folder {self.folder} has to be "
                "emptied first",
                field="set_id",
            )
        if self.kept.set_id != set_id and not asks_only:
            try:
                self.keep(replace(self.kept, set_id=set_id, created_at_ms=created_at_ms, is_founder=False))
            except OSError as error:
                raise Unavailable(f"the disk failed: {error}") from error
            self._joined.set()
        return self.kept.member

    def _may_leave(self) -> bool:
        """Whether this is a founder that nobody has followed yet."""
        return self.kept.is_founder and read_outline(self.disk, self.folder) is None

    def keep(self, kept: KeptReign) -> None:
        """Write down who this is now. Errors: OSError."""
        write_reign(self.disk, self.folder, kept)
        self.kept = kept

    async def begin(self, ask: Ask) -> None:
        """Return when this member is of a set that has begun."""
        if not self.kept.set_id and self.number == 1:
            set_id, created_at_ms = self.randomness.id_text(), self.clock.now_ms()
            self.keep(replace(self.kept, set_id=set_id, created_at_ms=created_at_ms, is_founder=True))
        while self.kept.is_founder and read_outline(self.disk, self.folder) is None:
            if bases(self.disk.list(self.folder)):
                raise DataLoss(
                    f"{self.folder} holds a log, and nothing says who its members are: empty it, and add its disk anew"
                )
            await self._found(ask)
        await self._joined.wait()

    async def _found(self, ask: Ask) -> None:
        """Ask everybody whether they would, then to be of the set; with all of them, begin.

        Who says yes at once would be lost to the set that another one of them is of already: it would be of this one.
        """
        kept = self.kept
        others: list[MemberId] = []
        addresses = enumerate(self.addresses[: self.members], 1)
        asked = [(number, address) for number, address in addresses if number != self.number]
        for asks_only, (number, address) in product((True, False), asked):
            try:
                other = await ask(address, kept.set_id, kept.created_at_ms, asks_only)
                if other.number != number:
                    raise Conflict(f"at {address} is member {other.number}, not {number}", field="member_addresses")
                others += [] if asks_only else [other]
            except OrtooError as error:
                _log.emit(log_events.REPLICA_SET_WAITING, member=number, address=address, reason=str(error))
                await self.clock.sleep(ASK_INTERVAL_S)
                return
        if self.kept != kept:
            return  # it was added to another set meanwhile
        voters = tuple(sorted([kept.member, *others]))
        first = LogOutline(placed=(MembersFrame(0, Configuration(voters)),))
        write_outline(self.disk, self.folder, KeptOutline(first))
        self._joined.set()
        _log.emit(log_events.REPLICA_SET_INITIALIZED, set_id=kept.set_id, members=len(voters))

    def started(self) -> tuple[KeptReign, KeptOutline]:
        """What one more start of this member begins with: another incarnation, which is on disk."""
        self.keep(replace(self.kept, incarnation=self.kept.incarnation + 1))
        return self.kept, read_outline(self.disk, self.folder) or KeptOutline()
