"""One bound for all memory that clients can make a process hold: who asks for more than is left is refused, or evicts.

Whatever is buffered for a client or because of one (what it has not read, what it sent and nobody has taken) is drawn
from the process's budget by a share. When the budget is used up, those are ended who hold bytes that nobody reads, the
largest first and of equal ones the one that has waited longest; who reads what it gets is never ended, only slowed.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from ortoo.common.errors import Overloaded
from ortoo.common.errors.findings import Finding
from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock, SystemClock

CGROUPS, CGROUPS_OF_PROCESS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
LIMIT_V1, LIMIT_V2 = "memory.limit_in_bytes", "memory.max"
DEFAULT_PERCENT = 50
"""What of the container's or the machine's memory a budget is that nobody chose."""
BEHIND_S = 1.0
"""How long bytes lie unread until their owner counts as behind."""
LOOK_INTERVAL_S = 0.1
"""How often it is looked who is behind, at most: there may be thousands who ask in vain."""
TARGET_PERCENT = 50
"""Down to how much of the budget is evicted: those who read must find room soon, beside many who do not."""
FAREWELL_S = 1.0
"""How long one that is evicted has time to go by itself, before its peer counts as deaf."""
SENDERS_PERCENT = 12
"""What of the budget is kept for single requests: those who send must go on beside many who do not read."""
RESIDENT_PERCENT = 300
"""What counted bytes cost in resident memory at most: received messages and freed buffers count nowhere.

Measured on a quick machine: 260.
"""
FOUND_PERCENT = 85
"""From what part of the budget on an operator is told."""
TELL_INTERVAL_S = 10.0
"""How often the log tells who was ended."""
USUAL_AT_FIRST_BYTES, USUAL_FADES = 512 << 10, 0.99
"""What is expected of the first answers, and how fast larger ones are forgotten, for each answer."""
_log = get_logger("memory")


def memory_bytes(root: Path = CGROUPS, of_process: Path = CGROUPS_OF_PROCESS) -> int:
    """What this process may use: the least that any control group above it allows, else the machine's memory.

    In a container its own group is mounted at `root`; elsewhere `of_process` says which groups below that it is in.
    """
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in _limit_files(root, of_process):
        try:
            found = min(found, int(file.read_text()))
        except (OSError, ValueError):  # there is no such limit, or it is "max"
            continue
    return found


def _limit_files(root: Path, of_process: Path) -> Iterator[Path]:
    """Of version 2 and of version 1, each from the process's group up to the root."""
    yield root / LIMIT_V2
    yield root / "memory" / LIMIT_V1
    try:
        lines = of_process.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        group = Path(path.lstrip("/"))
        if "memory" in controllers.split(","):
            yield from (root / "memory" / one / LIMIT_V1 for one in (group, *group.parents))
        elif not controllers:
            for mounted in (root, root / "unified"):
                yield from (mounted / one / LIMIT_V2 for one in (group, *group.parents))


class MemoryShare:
    """What one owner (a session, a stream, a watch) has drawn. Belongs to the event loop."""

    __slots__ = (
        "_budget",
        "_closed",
        "asked_bytes",
        "behind_since_s",
        "bytes",
        "evicted_at_s",
        "fixed_bytes",
        "is_deaf",
        "kind",
        "on_deaf",
        "on_evict",
    )

    def __init__(self, budget: "MemoryBudget", kind: str, evict: Callable[[str], object] | None) -> None:
        self._budget = budget
        self.on_evict = evict
        """Ends the owner in a way that tells it why, given the reason; None = there is no such way."""
        self.on_deaf: Callable[[], None] | None = None
        """Ends the owner against its peer's will, which hears nothing; None = there is no such way."""
        self.kind = kind
        self.bytes = 0
        self.fixed_bytes = 0
        """What the owner costs as long as it is there, read or not."""
        self.asked_bytes = 0
        """What was asked of somebody else for the peer and has not come yet."""
        self.behind_since_s = budget.now_s()
        """Since when the peer has taken nothing of what lies here for it."""
        self.evicted_at_s: float | None = None
        self.is_deaf = False
        """Whether it was told by `on_deaf` that its peer does not hear."""
        self._closed = False

    @property
    def unread_bytes(self) -> int:
        """What lies here for the peer."""
        return self.bytes - self.fixed_bytes - self.asked_bytes

    def draw(self, size_bytes: int, *, is_request: bool = False) -> None:
        """Take bytes that are not held yet. Errors: Overloaded, and nothing is taken.

        What a single request needs may come out of what is kept for such.
        """
        self._budget.make_room(self.kind, size_bytes, is_request=is_request)
        self.take(size_bytes)

    def take(self, size_bytes: int) -> None:
        """Take bytes that are held already, whatever is left."""
        if self._closed:
            return
        if not self.unread_bytes:
            self.moved()
        self.bytes += size_bytes
        self._budget.used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Bytes are held no longer."""
        size_bytes = min(size_bytes, self.bytes)
        self.bytes -= size_bytes
        self._budget.used_bytes -= size_bytes

    def fix(self, size_bytes: int, *, is_request: bool = False) -> None:
        """Draw what the owner costs by itself. Errors: Overloaded."""
        self.draw(size_bytes, is_request=is_request)
        self.fixed_bytes += size_bytes

    def settle(self) -> None:
        """What it holds is the owner's cost from now on: it waits for its peer no longer."""
        self.fixed_bytes = self.bytes
        self.on_evict = self.evicted_at_s = None

    def unfix(self, size_bytes: int) -> None:
        """The owner costs less by itself than before."""
        self.fixed_bytes -= size_bytes
        self.give_back(size_bytes)

    def came(self, size_bytes: int) -> None:
        """Something that was asked for came, and is so large."""
        self._budget.usual_bytes = max(size_bytes, self._budget.usual_bytes * USUAL_FADES)

    def moved(self) -> None:
        """The peer has taken something."""
        self.behind_since_s = self._budget.now_s()

    @property
    def evicted(self) -> bool:
        """Whether the owner was told to go."""
        return self.evicted_at_s is not None

    def evict(self, reason: str) -> None:
        """End the owner, which gives its bytes back as they are let go."""
        self.evicted_at_s = self._budget.now_s()
        if self.on_evict is not None:
            self.on_evict(reason)
        else:
            self.end()

    def end(self) -> None:
        """End the owner although its peer hears nothing, once."""
        if self.on_deaf is not None and not self.is_deaf:
            self.is_deaf = True
            self.on_deaf()

    @property
    def may_be_evicted(self) -> bool:
        """Whether there is a way to end its owner, and something unread to be had by that."""
        has_way = self.on_evict is not None or self.on_deaf is not None
        return has_way and not self.evicted and self.unread_bytes > 0

    def close(self) -> None:
        """Give everything back: the owner is gone, and what it still lets go of counts no more."""
        self.give_back(self.bytes)
        self.on_evict = self.on_deaf = None
        self._closed = True
        self._budget.forget(self)

    def ask(self, size_bytes: int) -> "Held":
        """Draw what somebody is asked for on the peer's behalf, or what usually comes. Errors: Overloaded.

        An enode answers with whole batches, however little it is asked for.
        """
        if size_bytes:
            size_bytes = max(size_bytes, int(self._budget.usual_bytes))
        self.draw(size_bytes)
        self.asked_bytes += size_bytes
        return Held(self, size_bytes)

    @contextlib.contextmanager
    def asked(self, size_bytes: int) -> Iterator["Held"]:
        """The same for a block, after which nothing is held. Errors: Overloaded, before the block."""
        held = self.ask(size_bytes)
        try:
            yield held
        finally:
            held.becomes(0)


class Held:
    """Bytes of a share whose number changes: first what was asked for, then what came, then what is left of it."""

    __slots__ = ("_asked_bytes", "_share", "bytes")

    def __init__(self, share: MemoryShare, asked_bytes: int) -> None:
        self._share = share
        self.bytes = self._asked_bytes = asked_bytes

    def becomes(self, size_bytes: int) -> None:
        """It came, or shrank, and is so large now."""
        since_s, unread = self._share.behind_since_s, self._share.unread_bytes
        if self._asked_bytes:
            self._share.came(size_bytes)
        self._share.give_back(self.bytes)
        self._share.asked_bytes -= self._asked_bytes
        self.bytes, self._asked_bytes = max(0, size_bytes), 0
        self._share.take(self.bytes)
        if unread:
            self._share.behind_since_s = since_s


class MemoryBudget:
    """The process's bound, and all shares in it."""

    def __init__(self, bytes_max: int = 0, clock: Clock | None = None, *, spared_percent: int = 0) -> None:
        """Allow `bytes_max` of resident memory; 0 = a part of what the container or the machine has.

        `spared_percent` of that is for other purposes.
        """
        self.limit_bytes = memory_bytes()
        """What the whole process may have resident."""
        self.allowed_bytes = bytes_max or self.limit_bytes * (100 - spared_percent) // 100 * DEFAULT_PERCENT // 100
        """What it may have resident for clients."""
        self.bytes_max = self.allowed_bytes * 100 // RESIDENT_PERCENT
        """How many bytes may be counted."""
        self.used_bytes = 0
        self.is_closed = False
        """Whether nothing more is given, because the process itself is at its limit."""
        self.usual_bytes: float = USUAL_AT_FIRST_BYTES
        """What comes at most when somebody is asked, as far as was seen lately."""
        self.refused: Counter[str] = Counter()
        """How often each kind asked in vain."""
        self.evicted: Counter[str] = Counter()
        """How many of each kind were ended."""
        self._clock = clock or SystemClock()
        self._shares: dict[MemoryShare, None] = {}
        self._look_at_s = 0.0
        self._told_at_s = float("-inf")

    def now_s(self) -> float:
        """The time by which owners are behind."""
        return self._clock.monotonic_s()

    @property
    def left_bytes(self) -> int:
        """What is not used."""
        return max(0, self.bytes_max - self.used_bytes)

    def share(self, kind: str, evict: Callable[[str], object] | None = None) -> MemoryShare:
        """A share without bytes. `evict` ends its owner, given the reason, and must not wait; None = it stays."""
        share = MemoryShare(self, kind, evict)
        self._shares[share] = None
        return share

    def forget(self, share: MemoryShare) -> None:
        """A share is closed."""
        self._shares.pop(share, None)

    def findings(self) -> Iterator[Finding]:
        """Whether nearly all of it is used."""
        if self.used_bytes * 100 > self.bytes_max * FOUND_PERCENT:
            most = max(self.by_kind().items(), key=lambda item: item[1], default=((), 0))[0]
            yield Finding(
                "memory used up",
                f"{self.used_bytes} of {self.bytes_max} bytes are held for clients, most for {', '.join(most)}",
                "requests are refused as Overloaded, and who does not read is ended",
                "raise memory_budget_bytes or the container's limit, or find who does not read: ortoo clients",
            )

    def by_kind(self) -> dict[tuple[str, ...], int]:
        """How many bytes each kind of owner holds."""
        found: Counter[tuple[str, ...]] = Counter()
        for share in self._shares:
            found[(share.kind,)] += share.bytes
        return found

    def make_room(self, kind: str, size_bytes: int, *, is_request: bool = False) -> None:
        """Return when so many bytes fit, at the expense of those who are behind. Errors: Overloaded."""
        if self.is_closed:
            self.refused[kind] += 1
            raise Overloaded(
                "the resident memory of this process is near the limit of its container or machine, so that it takes "
                "no more work; retry later, or use another process",
                retry_after_ms=1_000,
            )
        allowed_bytes = self.bytes_max if is_request else self.bytes_max * (100 - SENDERS_PERCENT) // 100
        if self.used_bytes + size_bytes > allowed_bytes:
            self._evict_those_behind(size_bytes)
        if self.used_bytes + size_bytes > allowed_bytes:
            self.refused[kind] += 1
            raise Overloaded(
                f"{size_bytes} bytes more are asked for by {kind}, {self.used_bytes} are used and {allowed_bytes} "
                "allowed (memory_budget_bytes); read faster, ask for less, or use another process",
                retry_after_ms=1_000,
            )

    def _evict_those_behind(self, size_bytes: int) -> None:
        now_s = self.now_s()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_INTERVAL_S
        leaving = 0
        for share in [one for one in self._shares if one.evicted_at_s is not None]:
            leaving += share.bytes
            if now_s - (share.evicted_at_s or 0.0) >= FAREWELL_S:
                share.end()
        missing = self.used_bytes + size_bytes - leaving - self.bytes_max * TARGET_PERCENT // 100
        behind = [one for one in self._shares if one.may_be_evicted and now_s - one.behind_since_s >= BEHIND_S]
        evicted: Counter[str] = Counter()
        for share in sorted(behind, key=lambda one: (-one.bytes, one.behind_since_s)):
            if missing <= 0:
                break
            missing -= share.bytes
            evicted[share.kind] += 1
            share.evict(
                f"{share.bytes} bytes lie here unread for {now_s - share.behind_since_s:.1f} s and the process's "
                f"memory is used up ({self.used_bytes} of {self.bytes_max} bytes); read faster, or come later"
            )
        self.evicted += evicted
        if evicted and now_s - self._told_at_s >= TELL_INTERVAL_S:
            self._told_at_s = now_s
            _log.emit(log_events.SLOW_READERS_EVICTED, since_start=dict(self.evicted))
