"""Findings of an enode about itself: its disk, its log, its groups, its messages."""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ortoo.common.errors.findings import Finding
from ortoo.common.groups.group_topics import group_of_topic
from ortoo.common.logs.counts import counted
from ortoo.common.process.clock import Clock
from ortoo.enode.observe.backlog import Backlogs, GroupBacklog
from ortoo.enode.store.store import Store

SLOW_FLUSH_S = 0.1
"""A flush that takes longer on average makes every durable send wait."""
SAMPLES = 20
"""The number of samples of flush times; one is taken at each check of the enode's health."""
CLOCK_BACK_MS = 2_000
CHECK_LATE_MS = 600_000
"""Delay of a transaction's check that is a finding."""
RETENTION_USED_MAX = 0.75
"""The share of its retention that a group's oldest message may use without a finding."""
LOSS_SHOWN_MS = 86_400_000
"""Time for which a loss of messages is a finding."""
LISTED_MAX = 5


@dataclass(frozen=True, slots=True)
class EnodeFindings:
    """Examines an open store, on its event loop; it reads no disk."""

    store: Store
    backlogs: Backlogs
    clock: Clock
    _flushes: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    """Samples of (number of flushes, their total seconds)."""

    def sample(self) -> None:
        """Take a sample of the flush times. The caller calls this twice a second."""
        appender = self.store.engine.appender
        self._flushes.append((appender.flushes, appender.flush_s))

    def _flush_s(self) -> float:
        """The recent average time of a flush; 0 with less than 2 flushes."""
        if len(self._flushes) < 2:
            return 0.0
        (before, before_s), (flushes, flush_s) = self._flushes[0], self._flushes[-1]
        return (flush_s - before_s) / (flushes - before) if flushes - before >= 2 else 0.0

    def disk(self) -> Iterator[Finding]:
        """Findings of the disk: failed or slow writes, damaged data, and a clock that was set back."""
        appender, catalog = self.store.engine.appender, self.store.engine.catalog
        elsewhere = "sends go to other enodes, except that those of message groups assigned here wait; reads are served"
        if appender.is_folder_gone:
            yield Finding(
                "data folder missing",
                appender.failure,
                f"it acknowledges nothing until it is opened again; {elsewhere}",
                "put the folder back where data_dir says, then restart the process; do not start it on an empty one",
            )
        elif appender.failure:
            yield Finding(
                "disk failed",
                appender.failure,
                f"it acknowledges nothing until it is opened again; {elsewhere}",
                "look at the machine's kernel log (dmesg), then restart the process; with a bad disk, move it first",
            )
        elif appender.full:
            yield Finding(
                "disk full",
                appender.full,
                elsewhere,
                "enlarge the volume (df and df -i show what is used up), or lower store.retention_bytes or "
                "store.retention_age_ms: writes then resume",
            )
        elif appender.starved:
            yield Finding(
                "file descriptors exhausted",
                appender.starved,
                elsewhere,
                "raise the limit of open files (ulimit -n, LimitNOFILE=) or close connections: writes then resume",
            )
        for damage in islice(catalog.damages, LISTED_MAX):
            yield Finding(
                "damaged log",
                f"{damage.length_bytes} bytes of {damage.file} at {damage.position} are wrong: {damage.reason}",
                "reads of these places fail with DATA_LOSS; everything else is served",
                "ortoo-enode inspect DIR --verify lists every place, ortoo-enode repair DIR the remedies",
                subject=f"{damage.file} {damage.position}",
            )
        if hanging := appender.check_hanging():
            yield Finding(
                "disk hangs",
                f"{hanging}: a flush has not finished for {appender.flushing_s:.1f} s",
                f"sends wait for it, unless a majority of other replicas acknowledges them; {elsewhere}",
                "look at the disk (iostat -x 1, dmesg); restart the process on another one if it does not recover",
            )
        elif (took_s := self._flush_s()) > SLOW_FLUSH_S:
            yield Finding(
                "slow disk",
                f"a flush takes {took_s * 1000:.0f} ms",
                "every durable send waits for one",
                "check which other processes use the disk (iostat -x 1); cloud volumes are often limited by their size",
                critical=False,
            )
        if (ahead_ms := appender.stored_at_ms - self.clock.now_ms()) > CLOCK_BACK_MS:
            yield Finding(
                "clock set back",
                f"the last message was stored {ahead_ms / 1000:.0f} s later than this machine's clock says it is",
                "messages get that time until the clock reaches it; delayed messages and retention by age are late",
                f"compare the clock with others (chronyc tracking, timedatectl). If it is right now, wait "
                f"{ahead_ms / 1000:.0f} s: it was ahead before. Otherwise synchronise it",
            )

    def messages(self) -> Iterator[Finding | None]:
        """Findings that need an operator: dead letters, parked transactions, messages that fail repeatedly.

        None = a step of the examination.
        """
        state = self.store.engine.state
        yield from self.backlogs.refresh()
        backlogs: list[GroupBacklog] = []
        for one in self.backlogs.all():
            yield None
            if one.parked or one.retrying or one.lost or one.retention_used:
                backlogs.append(one)
        for one in backlogs:
            if not one.parked:
                yield None
                continue
            group = one.group
            yield Finding(
                "dead letters",
                f"{counted(one.parked, 'message', 'are')} parked, because every attempt of group {group} failed",
                "no consumer processes them, and retention deletes them in the end",
                f"ortoo dlq list {group} shows the reasons; ortoo dlq replay {group} sends them again",
                critical=False,
                subject=group,
            )
        if parked := state.halves.select(parked_only=True, limit=LISTED_MAX):
            groups = ", ".join(sorted({one.producer_group for one in parked}))
            yield Finding(
                "stalled transactions",
                f"checks of transactions got no verdict from producers of {groups}",
                "their messages stay invisible until an operator decides",
                "ortoo tx list --parked, then ortoo tx commit ID, ortoo tx rollback ID or ortoo tx resume ID",
                critical=False,
            )
        late_ms = self.clock.now_ms() - CHECK_LATE_MS
        open_halves = state.halves.open.values()
        if waiting := Counter(
            one.producer_group for one in open_halves if not one.parked and one.next_check_ms < late_ms
        ):
            groups = ", ".join(sorted(waiting))
            yield Finding(
                "unchecked transactions",
                f"{waiting.total()} transactions wait for a check, and no producer of {groups} is connected",
                "their messages stay invisible until a producer of the group connects, or an operator decides",
                "start a producer of the group, or ortoo tx commit ID or ortoo tx rollback ID",
                critical=False,
            )
        yield from self._failing(backlogs)
        yield from self._retention(backlogs)

    def _failing(self, backlogs: Sequence[GroupBacklog]) -> Iterator[Finding | None]:
        """Groups whose messages wait for another attempt, those with the most messages first."""
        now_ms = self.clock.now_ms()
        for one in (yield from _first(backlogs, lambda one: one.retrying)):
            due_s = max(0, one.next_retry_at_ms - now_ms) / 1000
            attempts = f" after up to {one.attempts} attempts" if one.attempts else ""
            error = f"; the last error of {one.consumer or 'a consumer'}: {one.error}" if one.error else ""
            yield Finding(
                "failing handler",
                f"{counted(one.retrying, 'message', 'wait')} in retries of group {one.group} in {one.topic}{attempts}, "
                f"the next one for {due_s:.0f} s{error}",
                "after the last attempt they are parked as dead letters",
                f"{_shown_by(one)} shows more; look at the consumers' logs",
                critical=False,
                subject=f"{one.group} {one.topic}",
            )

    def _retention(self, backlogs: Sequence[GroupBacklog]) -> Iterator[Finding | None]:
        """Groups that lost messages to retention, or that soon will."""
        now_ms, lost = self.clock.now_ms(), list[GroupBacklog]()
        for one in backlogs:
            yield None
            if one.lost and one.lost_at_ms > now_ms - LOSS_SHOWN_MS:
                lost.append(one)
        for one in sorted(lost, key=lambda one: -one.lost):
            yield Finding(
                "messages lost to retention",
                f"retention deleted {counted(one.lost, 'message')} of {one.topic} before group {one.group} "
                f"finished them, the last ones {(now_ms - one.lost_at_ms) / 60_000:.0f} min ago",
                "the group never gets these messages",
                "raise store.retention_age_ms or store.retention_bytes, or run more consumers. "
                "A loss is reported for a day",
                subject=f"{one.group} {one.topic}",
            )
        for one in (yield from _first(backlogs, lambda one: one.retention_used)):
            if one.retention_used > RETENTION_USED_MAX:
                yield Finding(
                    "retention nearly used up",
                    f"the oldest of {one.unfinished} unfinished messages of group {one.group} in {one.topic} has used "
                    f"{one.retention_used:.0%} of its retention ({one.retention_setting})",
                    "retention deletes messages whether or not the group has finished them",
                    f"ortoo settings set enode {one.retention_setting}=LARGER needs no restart, then run more "
                    f"consumers; {_shown_by(one)} shows more",
                    subject=f"{one.group} {one.topic}",
                )


def _first(
    backlogs: Iterable[GroupBacklog], value_of: Callable[[GroupBacklog], float]
) -> Generator[None, None, list[GroupBacklog]]:
    """The LISTED_MAX backlogs with the largest values above 0, in order, with a step for each backlog."""
    found: list[GroupBacklog] = []
    for one in backlogs:
        yield
        if value_of(one) > (value_of(found[-1]) if len(found) == LISTED_MAX else 0):
            found = sorted([*found, one], key=value_of, reverse=True)[:LISTED_MAX]
    return found


def _shown_by(backlog: GroupBacklog) -> str:
    """The command that shows the messages of a backlog."""
    if group_of_topic(backlog.topic) == backlog.group:
        return f"ortoo group describe {backlog.group}"
    return f"ortoo explain {backlog.group} {backlog.topic}"
