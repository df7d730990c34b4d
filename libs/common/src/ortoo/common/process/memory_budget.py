"""One limit for all memory that a process uses for its clients. At the limit, slow readers are evicted.

Requests that still do not fit are refused. All buffers for a client are drawn from the budget by a share. They hold
data that the client has not read, or data from the client that are not yet processed. When the budget is used up,
owners of shares with unread bytes are evicted, the largest first. Among equal owners, the owner that has waited longest
is evicted first. A client that reads its data is never evicted, only slowed down.
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
from ortoo.common.logs.rate_limit import LogRateLimit
from ortoo.common.process.clock import Clock, SystemClock

CGROUPS, CGROUPS_OF_PROCESS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
LIMIT_V1, LIMIT_V2 = "memory.limit_in_bytes", "memory.max"
DEFAULT_PERCENT = 50
"""The default budget, as a percentage of the container's or the machine's memory."""
SLOW_READER_S = 1.0
"""The time for which bytes are unread until their owner counts as a slow reader."""
CHECK_INTERVAL_S = 0.1
"""Minimum interval between searches for slow readers, because thousands of requests may fail at once."""
TARGET_PERCENT = 50
"""The percentage of the budget down to which owners are evicted, so that clients that read soon get memory."""
EVICTION_GRACE_S = 1.0
"""The time in which an evicted owner may end gracefully, before it is ended without its peer's cooperation."""
SENDERS_PERCENT = 12
"""The percentage of the budget reserved for single requests, so that senders continue beside many slow readers."""
RESIDENT_PERCENT = 300
"""Maximum resident memory as a percentage of the counted bytes, because received messages and freed buffers are not
counted. Measured on a fast machine: 260."""
FINDING_PERCENT = 85
"""The percentage of the budget from which there is a finding for operators."""
USUAL_AT_FIRST_BYTES, USUAL_FADES = 512 << 10, 0.99
"""The expected size of the first answers, and the factor by which it decays with each answer."""
_log = get_logger("memory")


def memory_bytes(root: Path = CGROUPS, of_process: Path = CGROUPS_OF_PROCESS) -> int:
    """The memory limit of this process: the smallest limit of its control groups, or else the machine's memory.

    In a container the process's own group is mounted at `root`. Elsewhere `of_process` lists its groups below `root`.
    """
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in _limit_files(root, of_process):
        try:
            found = min(found, int(file.read_text()))
        except (OSError, ValueError):  # no such limit, or it is "max"
            continue
    return found


def default_budget_bytes(total_bytes: int, *, spared_percent: int = 0) -> int:
    """The default budget for `total_bytes` of memory, of which `spared_percent` is kept for other purposes."""
    return total_bytes * (100 - spared_percent) // 100 * DEFAULT_PERCENT // 100


def _limit_files(root: Path, of_process: Path) -> Iterator[Path]:
    """The limit files of control groups of versions 2 and 1, each from the process's group up to the root."""
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
    """The memory of one owner (a session, a stream, a watch). Only code on the event loop may use it."""

    __slots__ = (
        "_budget",
        "_closed",
        "bytes",
        "evicted_at_s",
        "fixed_bytes",
        "is_unresponsive",
        "kind",
        "on_evict",
        "on_unresponsive",
        "reserved_bytes",
        "slow_since_s",
    )

    def __init__(self, budget: "MemoryBudget", kind: str, evict: Callable[[str], object] | None) -> None:
        self._budget = budget
        self.on_evict = evict
        """Ends the owner gracefully, with the reason as argument; None = not possible."""
        self.on_unresponsive: Callable[[], None] | None = None
        """Ends the owner without its peer's cooperation, because the peer does not respond; None = not possible."""
        self.kind = kind
        self.bytes = 0
        self.fixed_bytes = 0
        """The memory that the owner needs while it exists, whether or not its peer reads."""
        self.reserved_bytes = 0
        """The size of data that were requested for the peer and have not come yet."""
        self.slow_since_s = 0.0
        """The time since which the peer has not taken its unread bytes, if there are any."""
        self.evicted_at_s: float | None = None
        self.is_unresponsive = False
        """Whether `on_unresponsive` was called."""
        self._closed = False

    @property
    def unread_bytes(self) -> int:
        """The bytes that wait for the peer."""
        return self.bytes - self.fixed_bytes - self.reserved_bytes

    def draw(self, size_bytes: int, *, is_request: bool = False) -> None:
        """Draw bytes from the budget before they are allocated. After an error (Overloaded) no bytes are drawn.

        With `is_request` the bytes may come from the part of the budget that is reserved for single requests.
        """
        self._budget.wait_for_room(self.kind, size_bytes, is_request=is_request)
        self.draw_unchecked(size_bytes)

    def draw_unchecked(self, size_bytes: int) -> None:
        """Draw bytes that are already allocated, also above the limit."""
        if self._closed:
            return
        if not self.unread_bytes:
            self.on_progress()
        self.bytes += size_bytes
        self._budget.used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Return bytes to the budget that have been freed."""
        size_bytes = min(size_bytes, self.bytes)
        self.bytes -= size_bytes
        self._budget.used_bytes -= size_bytes

    def draw_fixed(self, size_bytes: int, *, is_request: bool = False) -> None:
        """Draw fixed memory, which the owner needs whether or not its peer reads. Errors: Overloaded."""
        self.draw(size_bytes, is_request=is_request)
        self.fixed_bytes += size_bytes

    def settle(self) -> None:
        """Make all held bytes fixed memory of the owner, which no longer waits for its peer."""
        self.fixed_bytes = self.bytes
        self.on_evict = self.evicted_at_s = None

    def release_fixed(self, size_bytes: int) -> None:
        """Return a part of the owner's fixed memory."""
        self.fixed_bytes -= size_bytes
        self.release(size_bytes)

    def on_received(self, size_bytes: int) -> None:
        """Note the size of requested data that have arrived."""
        self._budget.usual_bytes = max(size_bytes, self._budget.usual_bytes * USUAL_FADES)

    def on_progress(self) -> None:
        """Note that the peer has taken data."""
        self.slow_since_s = self._budget.now_s()

    @property
    def is_evicted(self) -> bool:
        """Whether the owner was evicted."""
        return self.evicted_at_s is not None

    def evict(self, reason: str) -> None:
        """End the owner. Its bytes stay counted until the owner frees them."""
        self.evicted_at_s = self._budget.now_s()
        if self.on_evict is not None:
            self.on_evict(reason)
        else:
            self.terminate()

    def terminate(self) -> None:
        """End the owner without its peer's cooperation; later calls do nothing."""
        if self.on_unresponsive is not None and not self.is_unresponsive:
            self.is_unresponsive = True
            self.on_unresponsive()

    @property
    def is_evictable(self) -> bool:
        """Whether the owner can be ended, and ending it would free unread bytes."""
        has_way = self.on_evict is not None or self.on_unresponsive is not None
        return has_way and not self.is_evicted and self.unread_bytes > 0

    def close(self) -> None:
        """Return all bytes, because the owner has ended; bytes that it frees later do not count."""
        self.release(self.bytes)
        self.on_evict = self.on_unresponsive = None
        self._closed = True
        self._budget.remove_share(self)

    def reserve(self, size_bytes: int) -> "ReservedBytes":
        """Draw memory for data that is requested on the peer's behalf. Errors: Overloaded.

        At least the usual size of answers is drawn, because an enode answers a small request with whole batches too.
        """
        if size_bytes:
            size_bytes = max(size_bytes, int(self._budget.usual_bytes))
        self.draw(size_bytes)
        self.reserved_bytes += size_bytes
        return ReservedBytes(self, size_bytes)

    @contextlib.contextmanager
    def reserved(self, size_bytes: int) -> Iterator["ReservedBytes"]:
        """Like `reserve`, but the bytes are returned at the end of the block. Errors: Overloaded, before the block."""
        held = self.reserve(size_bytes)
        try:
            yield held
        finally:
            held.resize(0)


class ReservedBytes:
    """The bytes of a share that one request uses: first the requested size, later the size of the unread answer."""

    __slots__ = ("_asked_bytes", "_share", "bytes")

    def __init__(self, share: MemoryShare, asked_bytes: int) -> None:
        self._share = share
        self.bytes = self._asked_bytes = asked_bytes

    def resize(self, size_bytes: int) -> None:
        """Set the number of bytes to the size of the data that have arrived, or of their remaining part."""
        since_s, unread = self._share.slow_since_s, self._share.unread_bytes
        if self._asked_bytes:
            self._share.on_received(size_bytes)
        self._share.release(self.bytes)
        self._share.reserved_bytes -= self._asked_bytes
        self.bytes, self._asked_bytes = max(0, size_bytes), 0
        self._share.draw_unchecked(self.bytes)
        if unread:
            self._share.slow_since_s = since_s


class MemoryBudget:
    """The process's limit, and all shares of it."""

    def __init__(
        self, bytes_max: int = 0, clock: Clock | None = None, *, spared_percent: int = 0, processes: int = 1
    ) -> None:
        """Allow `bytes_max` of resident memory; 0 = a part of the container's or the machine's memory.

        `spared_percent` of the container's or machine's memory is for other purposes. `processes` equal processes share
        this memory.
        """
        self.limit_bytes = memory_bytes() // processes
        """The limit of the whole process's resident memory."""
        self.allowed_bytes = bytes_max or default_budget_bytes(self.limit_bytes, spared_percent=spared_percent)
        """The limit of the resident memory for clients."""
        self.bytes_max = self.allowed_bytes * 100 // RESIDENT_PERCENT
        """Maximum number of counted bytes."""
        self.used_bytes = 0
        self.is_closed = False
        """Whether all requests are refused, because the process itself is at its limit."""
        self.usual_bytes: float = USUAL_AT_FIRST_BYTES
        """The size of the largest recent answers, with decay."""
        self.refused: Counter[str] = Counter()
        """The number of refused requests for memory, by kind."""
        self.evicted: Counter[str] = Counter()
        """The number of evicted owners, by kind."""
        self._clock = clock or SystemClock()
        self._shares: dict[MemoryShare, None] = {}
        self._next_check_s = 0.0
        self._log_rate = LogRateLimit()

    def now_s(self) -> float:
        """The current monotonic time, with which the budget decides which owners are slow readers."""
        return self._clock.monotonic_s()

    @property
    def left_bytes(self) -> int:
        """The unused bytes."""
        return max(0, self.bytes_max - self.used_bytes)

    def share(self, kind: str, evict: Callable[[str], object] | None = None) -> MemoryShare:
        """A new, empty share. `evict` gets a reason and ends the owner, without waiting; None = not evictable."""
        share = MemoryShare(self, kind, evict)
        self._shares[share] = None
        return share

    def fixed_share(self, kind: str, size_bytes: int, *, is_request: bool = False) -> MemoryShare:
        """A new share with this fixed memory (`MemoryShare.draw_fixed`). Errors: Overloaded."""
        self.wait_for_room(kind, size_bytes, is_request=is_request)
        share = self.share(kind)
        share.bytes = share.fixed_bytes = size_bytes
        self.used_bytes += size_bytes
        return share

    def remove_share(self, share: MemoryShare) -> None:
        """Remove a closed share."""
        self._shares.pop(share, None)

    def findings(self) -> Iterator[Finding]:
        """A finding if nearly all memory is used."""
        if self.used_bytes * 100 > self.bytes_max * FINDING_PERCENT:
            most = max(self.by_kind().items(), key=lambda item: item[1], default=((), 0))[0]
            yield Finding(
                "memory budget exhausted",
                f"{self.used_bytes} of {self.bytes_max} bytes are held for clients, most for {', '.join(most)}",
                "requests are refused as Overloaded, and slow readers are disconnected",
                "raise memory_budget_bytes or the container's limit, or find slow readers with `ortoo clients`",
            )

    def by_kind(self) -> dict[tuple[str, ...], int]:
        """The number of used bytes of each kind of owner."""
        found: Counter[tuple[str, ...]] = Counter()
        for share in self._shares:
            found[(share.kind,)] += share.bytes
        return found

    def wait_for_room(self, kind: str, size_bytes: int, *, is_request: bool = False) -> None:
        """Check that this size fits, if necessary after evicting slow readers. Errors: Overloaded if it does not."""
        if self.is_closed:
            self.refused[kind] += 1
            raise Overloaded(
                "the resident memory of this process is near the limit of its container or machine; retry later, or "
                "use another process",
                retry_after_ms=1_000,
            )
        allowed_bytes = self.bytes_max if is_request else self.bytes_max * (100 - SENDERS_PERCENT) // 100
        if self.used_bytes + size_bytes > allowed_bytes:
            self._evict_slow_readers(size_bytes)
        if self.used_bytes + size_bytes > allowed_bytes:
            self.refused[kind] += 1
            raise Overloaded(
                f"{kind} needs {size_bytes} bytes more, but {self.used_bytes} of {allowed_bytes} allowed bytes are "
                "used (memory_budget_bytes); read faster, request less, or use another process",
                retry_after_ms=1_000,
            )

    def _evict_slow_readers(self, size_bytes: int) -> None:
        now_s = self.now_s()
        if now_s < self._next_check_s:
            return
        self._next_check_s = now_s + CHECK_INTERVAL_S
        leaving = 0
        for share in [one for one in self._shares if one.evicted_at_s is not None]:
            leaving += share.bytes
            if now_s - (share.evicted_at_s or 0.0) >= EVICTION_GRACE_S:
                share.terminate()
        missing = self.used_bytes + size_bytes - leaving - self.bytes_max * TARGET_PERCENT // 100
        behind = [one for one in self._shares if one.is_evictable and now_s - one.slow_since_s >= SLOW_READER_S]
        evicted: Counter[str] = Counter()
        for share in sorted(behind, key=lambda one: (-one.bytes, one.slow_since_s)):
            if missing <= 0:
                break
            missing -= share.bytes
            evicted[share.kind] += 1
            share.evict(
                f"{share.bytes} bytes have been unread for {now_s - share.slow_since_s:.1f} s and the process's "
                f"memory is used up ({self.used_bytes} of {self.bytes_max} bytes); read faster, or retry later"
            )
        self.evicted += evicted
        if evicted and self._log_rate.acquire("evicted", now_s):
            _log.emit(log_events.SLOW_READERS_EVICTED, since_start=dict(self.evicted))
