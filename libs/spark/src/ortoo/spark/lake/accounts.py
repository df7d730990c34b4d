"""The accounts of a lake: the offsets that each checkpoint has written into it.

An archive has one account, under the id of its query. The account names the topics and the offsets of each queue that
the archive has added. The messages of a topic belong to one account, so that a second checkpoint adds none of them
again. An account is stored before its batch is added, and names that batch as pending. After a
crash between the two steps, the account ends behind the pending batch if the lake has it, and before it otherwise.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ortoo.client import Queue
from ortoo.common.errors import Conflict, NotFound, Unsupported
from ortoo.spark.core.offsets import SourceOffsets
from ortoo.spark.lake.checkpoint import Checkpoint
from ortoo.spark.lake.table import Lake

EARLIER: Final = "rows-without-account"
"""The account of rows with an unknown checkpoint, from the time before the lake had accounts."""
_PREFIX: Final = "account-"
_KEPT: Final = "accounts"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """The batch that an archive adds next, or has just added."""

    batch_id: int
    begin: SourceOffsets
    end: SourceOffsets


@dataclass(frozen=True, slots=True)
class LakeAccount:
    """The offsets that one archive has added to a lake."""

    job_id: str
    """The id of the archive's query, which is in its checkpoint."""
    checkpoint: str = ""
    """The folder of the checkpoint, for error messages and lists."""
    begin: SourceOffsets = SourceOffsets()
    """The first offset of each queue, and the ids of the topics; a missing id is unknown."""
    end: SourceOffsets = SourceOffsets()
    """The next offset of each queue."""
    pending: PendingBatch | None = None
    replaces: tuple[str, ...] = ()
    """The accounts that this one has continued."""

    @property
    def topics(self) -> set[str]:
        """The topics whose messages belong to this account."""
        last = self.pending.end.queues if self.pending else {}
        return {queue.topic for queue in (*self.end.queues, *last)}

    def with_batch(self, begin: SourceOffsets, end: SourceOffsets) -> "LakeAccount":
        """The account after a batch. A new queue, or a queue of a recreated topic, starts in this batch."""
        first: dict[Queue, int] = {}
        for queue, stop in end.queues.items():
            topic_id = end.topic_ids.get(queue.topic, 0)
            is_known = queue in self.begin.queues and self.begin.topic_ids.get(queue.topic, topic_id) == topic_id
            starts_here = begin.queues.get(queue, stop) if begin.topic_ids.get(queue.topic) == topic_id else stop
            first[queue] = min(self.begin.queues[queue] if is_known else starts_here, stop)
        kept = {queue: offset for queue, offset in self.begin.queues.items() if queue not in first}
        ends = {**self.end.queues, **end.queues}
        return replace(
            self,
            begin=SourceOffsets({**kept, **first}, {**self.begin.topic_ids, **end.topic_ids}),
            end=SourceOffsets(ends, {**self.end.topic_ids, **end.topic_ids}),
            pending=None,
        )

    def to_json(self) -> dict[str, Any]:
        """The account as JSON."""
        pending = self.pending and {
            "batch": self.pending.batch_id, "begin": self.pending.begin.to_json(), "end": self.pending.end.to_json()
        }  # fmt: skip
        return {
            "v": _FORMAT, "job": self.job_id, "checkpoint": self.checkpoint, "begin": self.begin.to_json(),
            "end": self.end.to_json(), "pending": pending, "replaces": list(self.replaces),
        }  # fmt: skip

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> "LakeAccount":
        """Parse the result of `to_json`. Errors: Unsupported for a newer format."""
        if value.get("v") != _FORMAT:
            raise Unsupported(f"an account has format {value.get('v')!r}, expected {_FORMAT}; upgrade ortoo-spark")
        offsets, pending = SourceOffsets.of_json, value["pending"]
        return cls(
            value["job"],
            value["checkpoint"],
            offsets(value["begin"]),
            offsets(value["end"]),
            PendingBatch(pending["batch"], offsets(pending["begin"]), offsets(pending["end"])) if pending else None,
            tuple(value["replaces"]),
        )


@dataclass(frozen=True, slots=True)
class LakeAccounts:
    """The accounts of one lake."""

    lake: Lake

    def all(self) -> list[LakeAccount]:
        """Every account. A batch is pending only as long as the lake does not have it."""
        names = (name for name in self.lake.note_names() if name.startswith(_PREFIX))
        texts = [text for text in map(self.lake.read_note, names) if text is not None]
        accounts = [LakeAccount.of_json(json.loads(text)) for text in texts]
        replaced = {old for account in accounts for old in account.replaces}
        return [self._settled(account) for account in accounts if account.job_id not in replaced]

    def adopt(self, checkpoint: Checkpoint) -> None:
        """Give accounts to the rows of a lake that an older version has written.

        The batches of this checkpoint get an account under its id. At the first call, all other rows get one too.
        """
        if not self.lake.file_paths():
            self._keep()
            return
        job_id, accounts = checkpoint.query_id, self.all()
        ids = {account.job_id for account in accounts} | {old for account in accounts for old in account.replaces}
        committed = self.lake.committed_batch(job_id) if job_id and job_id not in ids else None
        if job_id and job_id not in ids and committed is None:
            self.lake.discard(job_id, 0)  # half of its first batch, which this checkpoint adds again
        end = None if committed is None else checkpoint.newest_done(committed)
        if end is not None:
            note = self.lake.read_note("start.json")
            begin = SourceOffsets.of_json(json.loads(note)) if note else checkpoint.start() or SourceOffsets()
            own = LakeAccount(job_id, str(checkpoint.folder)).with_batch(begin, end)
            for earlier in (account for account in accounts if account.job_id == EARLIER):
                self._shrink(earlier, own.topics)  # after a crash here, the next run makes the account
            self._write(own)
        if self.lake.read_note(_KEPT) is None:
            owned = {topic for account in self.all() for topic in account.topics}
            rows = {queue: span for queue, span in self.lake.offset_spans().items() if queue.topic not in owned}
            begins = SourceOffsets({queue: first for queue, (first, _) in rows.items()})
            ends = SourceOffsets({queue: last + 1 for queue, (_, last) in rows.items()})
            if rows:
                self._write(LakeAccount(EARLIER, "", begins, ends))
            self._keep()

    def has(self, job_id: str) -> bool:
        """Whether a job has an account."""
        return any(account.job_id == job_id for account in self.all())

    def others(self, job_id: str, reads: Callable[[str], bool]) -> list[LakeAccount]:
        """The accounts of other jobs with a topic for which `reads` is true.

        Errors: Conflict when another account has replaced this job.
        """
        return self._others(self.all(), job_id, reads)

    def begin_batch(self, job_id: str, checkpoint: Checkpoint, batch_id: int, continues: Sequence[str] = ()) -> None:
        """Store that a batch is added next. Errors: Conflict when a topic of it belongs to another account."""
        begin, end = checkpoint.before(batch_id), checkpoint.planned(batch_id)
        accounts, topics = self.all(), {queue.topic for queue in end.queues}
        others = self._others(accounts, job_id, topics.__contains__)
        stored = next((account for account in accounts if account.job_id == job_id), None)
        own = stored or LakeAccount(job_id, str(checkpoint.folder))
        if stored is None:
            for other in [other for other in others if other.job_id in continues]:
                own = self._continued(own, other, checkpoint.oldest_known() or begin)
                others.remove(other)
        if others:
            raise owned_by_other(self.lake, others[0], topics)
        if self._has_batch(job_id, batch_id):
            return
        self._write(replace(own, pending=PendingBatch(batch_id, begin, end)))
        if stored is None or not topics <= stored.topics:
            self._check_alone(stored, job_id, topics)
        for old in own.replaces:
            self.lake.remove_note(_PREFIX + old)

    def remove(self, job_id: str) -> None:
        """Remove an account, so that another checkpoint may write its topics. Errors: NotFound."""
        if not self.has(job_id):
            raise NotFound(f"the lake {self.lake.path} has no account {job_id!r}", field="--reset")
        self.lake.remove_note(_PREFIX + job_id)

    def unfinished_files(self) -> Iterator[str]:
        """The beginnings of the names of files of batches that are not added completely, in a plain lake."""
        for account in self.all():
            if account.pending is not None:
                yield self.lake.batch_prefix(account.job_id, account.pending.batch_id)

    def _continued(self, own: LakeAccount, other: LakeAccount, start: SourceOffsets) -> LakeAccount:
        """An account that continues another one. Errors: Conflict when the other one has added more since."""
        for queue, offset in other.end.queues.items():
            is_same = other.end.topic_ids.get(queue.topic, 0) in (0, start.topic_ids.get(queue.topic))
            if is_same and start.queues.get(queue, offset) != offset:
                raise Conflict(
                    f"the job {other.job_id} has written queue {queue.queue_id} of {queue.topic} on {queue.enode} up "
                    f"to {offset}, and this checkpoint starts at {start.queues[queue]}. Stop that job, delete this "
                    "new checkpoint, and run again",
                    field="archive.on_new_checkpoint",
                )
        if other.pending is not None:
            self.lake.discard(other.job_id, other.pending.batch_id)
        begin, end = own.begin, own.end
        return replace(
            own,
            begin=_joined(begin, other.begin),
            end=_joined(end, other.end),
            replaces=(*own.replaces, other.job_id, *other.replaces),
        )

    def _check_alone(self, stored: LakeAccount | None, job_id: str, topics: set[str]) -> None:
        """Withdraw new topics if another job has stored an account of them at the same time. Errors: Conflict.

        Each job stores its account before this check, so that at least one of two jobs sees the other one.
        """
        if others := self._others(self.all(), job_id, topics.__contains__):
            if stored is None:
                self.lake.remove_note(_PREFIX + job_id)
            else:
                self._write(stored)
            raise owned_by_other(self.lake, others[0], topics)

    def _settled(self, account: LakeAccount) -> LakeAccount:
        pending = account.pending
        if pending is None or not self._has_batch(account.job_id, pending.batch_id):
            return account
        return account.with_batch(pending.begin, pending.end)

    def _has_batch(self, job_id: str, batch_id: int) -> bool:
        done = self.lake.committed_batch(job_id)
        return done is not None and done >= batch_id

    def _others(self, accounts: Sequence[LakeAccount], job_id: str, reads: Callable[[str], bool]) -> list[LakeAccount]:
        for account in accounts:
            if job_id in account.replaces:
                raise Conflict(
                    f"the job {account.job_id} has continued the archive of this checkpoint ({job_id}) in the lake "
                    f"{self.lake.path}; use the checkpoint {account.checkpoint}",
                    field="archive.checkpoint_path",
                )
        return [account for account in accounts if account.job_id != job_id and any(map(reads, account.topics))]

    def _write(self, account: LakeAccount) -> None:
        self.lake.write_note(_PREFIX + account.job_id, json.dumps(account.to_json()))

    def _shrink(self, account: LakeAccount, topics: set[str]) -> None:
        """Take topics out of an account, and remove it if none is left."""
        rest = _without_topics(account, topics)
        if rest.topics:
            self._write(rest)
        else:
            self.lake.remove_note(_PREFIX + account.job_id)

    def _keep(self) -> None:
        """Record that every row of the lake has an account."""
        if self.lake.read_note(_KEPT) is None:
            self.lake.write_note(_KEPT, str(_FORMAT))


def owned_by_other(lake: Lake, other: LakeAccount, topics: set[str]) -> Conflict:
    """The refusal of a checkpoint that is not the one of the lake's account."""
    shared = ", ".join(sorted(other.topics & topics) or sorted(other.topics))
    place = f" with the checkpoint {other.checkpoint}" if other.checkpoint else ""
    return Conflict(
        f"the lake {lake.path} has the messages of {shared} from another archive, the job {other.job_id}{place}; this "
        "checkpoint would add them again. Use that checkpoint. If it is lost, set on_new_checkpoint = 'continue' to "
        "start where the lake ends. To add the messages again, remove the account by "
        f"`ortoo-pipeline accounts --config FILE --reset {other.job_id}`",
        field="archive.on_new_checkpoint",
    )


def _joined(one: SourceOffsets, other: SourceOffsets) -> SourceOffsets:
    return SourceOffsets({**one.queues, **other.queues}, {**one.topic_ids, **other.topic_ids})


def _without_topics(account: LakeAccount, topics: set[str]) -> LakeAccount:
    def kept(offsets: SourceOffsets) -> SourceOffsets:
        return SourceOffsets({q: offset for q, offset in offsets.queues.items() if q.topic not in topics})

    return replace(account, begin=kept(account.begin), end=kept(account.end))
