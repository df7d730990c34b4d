"""What an enode knows to be wrong with itself: its disk, its log, its groups, its messages."""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from ortoo.common.errors.findings import Finding
from ortoo.common.process.clock import Clock
from ortoo.enode.store.store import Store

DEAD_LETTERS = "%DLQ%"
SLOW_FLUSH_S = 0.1
"""A flush that takes longer on average makes every durable send wait."""
HANGING_FLUSH_S = 2.0
SAMPLES = 20
"""Of flushes; one is taken at each look at the enode's health."""
CLOCK_BACK_MS = 2_000
TRIES_MANY = 3
"""Who has given a message back so often fails at it."""
PIECES_MAX = 10_000
"""How much of what groups hold is looked at, at most."""
NAMES_MAX = 5


@dataclass(frozen=True, slots=True)
class EnodeFindings:
    """Looks at an open store, on its event loop; it reads no disk."""

    store: Store
    clock: Clock
    _flushes: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    """How many there were at the last looks, and how long they took, all together."""

    def look(self) -> None:
        """Take a sample of how long flushes take; to be called twice a second."""
        appender = self.store.engine.appender
        self._flushes.append((appender.flushes, appender.flush_s))

    def _flush_s(self) -> float:
        """How long one took lately; 0 when there were few."""
        if len(self._flushes) < 2:
            return 0.0
        (before, before_s), (flushes, flush_s) = self._flushes[0], self._flushes[-1]
        return (flush_s - before_s) / (flushes - before) if flushes - before >= 2 else 0.0

    def disk(self) -> Iterator[Finding]:
        """Whether it can write, how fast, and what lies there is whole."""
        appender, catalog = self.store.engine.appender, self.store.engine.catalog
        elsewhere = "sends go to other enodes; those of message groups that belong here wait. Readers are served"
        if appender.failure:
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
                "store.retention_age_ms: it goes on by itself",
            )
        elif appender.starved:
            yield Finding(
                "descriptors used up",
                appender.starved,
                elsewhere,
                "raise the limit of open files (ulimit -n, LimitNOFILE=) or close connections: it goes on by itself",
            )
        for damage in islice(catalog.damages, NAMES_MAX):
            yield Finding(
                "damaged log",
                f"{damage.length_bytes} bytes of {damage.file} at {damage.position} are wrong: {damage.reason}",
                "what lies there is answered as DATA_LOSS; everything else is served",
                "ortoo-enode inspect DIR --verify names every place, ortoo-enode repair DIR what can be done",
            )
        if (hanging_s := appender.flushing_s) > HANGING_FLUSH_S:
            yield Finding(
                "disk hangs",
                f"a flush has taken {hanging_s:.1f} s and goes on",
                "every durable send waits for it",
                "look at the disk (iostat -x 1, dmesg); restart the process on another one if it does not come back",
            )
        elif (took_s := self._flush_s()) > SLOW_FLUSH_S:
            yield Finding(
                "slow disk",
                f"a flush takes {took_s * 1000:.0f} ms",
                "every durable send waits for one",
                "see who else uses the disk (iostat -x 1); cloud volumes are often limited by their size",
                serious=False,
            )
        if (ahead_ms := appender.stored_at_ms - self.clock.now_ms()) > CLOCK_BACK_MS:
            yield Finding(
                "clock set back",
                f"the last message was stored {ahead_ms / 1000:.0f} s later than this machine's clock says it is",
                "messages bear that time until the clock is there; delayed ones and ages are late",
                "synchronise the clock (chronyc tracking, timedatectl)",
            )

    def messages(self) -> Iterator[Finding]:
        """What waits for an operator: dead letters, parked transactions, messages that fail again and again."""
        state = self.store.engine.state
        for name, count in sorted(self._dead_letters().items()):
            group = name.removeprefix(DEAD_LETTERS)
            yield Finding(
                "dead letters",
                f"{count} messages of group {group} failed at every try and are parked",
                "nobody processes them, and retention takes them in the end",
                f"ortoo dlq list {group} says why; ortoo dlq replay {group} sends them again",
                serious=False,
            )
        if parked := state.halves.listed(parked_only=True, limit=NAMES_MAX):
            groups = ", ".join(sorted({one.producer_group for one in parked}))
            yield Finding(
                "stalled transactions",
                f"producers of {groups} were asked in vain about transactions",
                "their messages are seen by nobody until somebody decides",
                "ortoo tx list --parked, then ortoo tx commit ID, ortoo tx rollback ID or ortoo tx resume ID",
                serious=False,
            )
        for (topic, group), (count, error) in sorted(self._failing().items()):
            said = f"; it says: {error}" if error else ""
            yield Finding(
                "failing handler",
                f"group {group} has tried {count} messages of {topic} {TRIES_MANY} times or more{said}",
                "after the last try they are parked as dead letters",
                f"ortoo explain {group} {topic} shows each of them; look at the consumers' logs",
                serious=False,
            )

    def _dead_letters(self) -> dict[str, int]:
        """Dead-letter topic to how many lie there that were not sent again."""
        found: dict[str, int] = {}
        catalog, offsets = self.store.engine.catalog, self.store.engine.state.offsets
        for copy in self.store.topics():
            if not copy.name.startswith(DEAD_LETTERS):
                continue
            ids = range(copy.queue_count)
            done = offsets.of(copy.topic_id, copy.name.removeprefix(DEAD_LETTERS), tuple(ids))
            queues = [(queue_id, catalog.queues.get((copy.topic_id, queue_id))) for queue_id in ids]
            count = sum(
                queue.end_offset - max(queue.begin_offset, done.get(queue_id, 0))
                for queue_id, queue in queues
                if queue is not None
            )
            if count > 0:
                found[copy.name] = count
        return found

    def _failing(self) -> dict[tuple[str, str], tuple[int, str]]:
        """(topic, group) to how many messages were tried often, and what a consumer said of one."""
        found: dict[tuple[str, str], tuple[int, str]] = defaultdict(lambda: (0, ""))
        names = {copy.topic_id: copy.name for copy in self.store.topics()}
        left = PIECES_MAX
        for (topic_id, group, _), queue in self.store.engine.state.pops.all():
            if left <= 0 or topic_id not in names or names[topic_id].startswith(DEAD_LETTERS):
                continue
            pieces = queue.intervals.rows(queue.intervals.floor, left)
            left -= len(pieces)
            for piece in pieces:
                if piece.hold is not None and piece.hold.attempt >= TRIES_MANY:
                    count, error = found[names[topic_id], group]
                    said = queue.notes.get(piece.first, ("", ""))[1]
                    found[names[topic_id], group] = (count + piece.end - piece.first, error or said)
        return dict(found)
