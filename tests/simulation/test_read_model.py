"""The model of reads: the answers that it refuses, and the reads of an enode that it covers."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from ortoo.enode.rpc.leader_only import CONSISTENCY, Consistency
from ortoo.testing.simulation.kernel.event_loop import VirtualLoop
from ortoo.testing.simulation.kernel.random_streams import RandomStreams
from ortoo.testing.simulation.violations import Violations
from ortoo.verification.simulation.oracle.reads import PROMISE, ReadModel
from ortoo.verification.simulation.reads.replica_reads import READS, end_of

CHANGES = {
    "CommitOffsets", "TakeLocks", "ReleaseLocks", "RecallDelayed", "Lease", "PopQueues", "RecordFailedAttempt",
    "RecordInterruptions", "SettlePopped", "StoreHalf", "SettleHalf", "ResumeHalf", "RetryMessages", "ReplayStored",
    "UseDeliveryMode", "SetStoredMode", "AppendDeduplicated", "StoreSchedule", "ChangeStoredSchedule", "TrimQueues",
}  # fmt: skip
"""The methods that change the state."""
NOT_READ = {"ListStoredSchedules", "ListSinkAccounts"}
"""Reads of state that no scenario of the simulation writes."""


@pytest.fixture
def findings() -> Iterator[Violations]:
    """No findings yet."""
    with closing(VirtualLoop(RandomStreams(1))) as loop:
        yield Violations(loop)


def test_every_linearizable_read_is_sent_during_faults() -> None:
    """A new method that is answered from the state gets a read in the simulation."""
    linearizable = {name for name, kind in CONSISTENCY.items() if kind is Consistency.CONFIRMED}
    assert set(READS) | CHANGES | NOT_READ == linearizable


def test_an_answer_without_an_acknowledged_write_is_stale(findings: Violations) -> None:
    """The write was acknowledged before the request."""
    reads = ReadModel(findings)
    reads.acknowledged(end_of(0), 3)
    start = reads.begin(1.0)
    reads.acknowledged(end_of(0), 4)  # acknowledged after the request: the answer may lack it
    reads.seen(start, end_of(0), 3, "a replica")
    assert list(findings.all) == []
    reads.seen(start, end_of(0), 2, "a replica")
    assert [one.promise for one in findings.all] == [PROMISE]


def test_a_value_that_was_seen_is_never_undone(findings: Violations) -> None:
    """No client wrote it successfully, but one read showed it."""
    reads = ReadModel(findings)
    reads.seen(reads.begin(1.0), end_of(0), 5, "the former leader")
    reads.seen(reads.begin(2.0), end_of(0), 4, "the next leader")
    assert [one.promise for one in findings.all] == [PROMISE]


def test_content_never_changes(findings: Violations) -> None:
    """A batch at an offset is the same in every answer."""
    reads = ReadModel(findings)
    for content in (b"one", b"one"):
        reads.same(("batch", "0", "7"), content, "a replica")
    assert list(findings.all) == []
    reads.same(("batch", "0", "7"), b"other", "a replica")
    assert [one.promise for one in findings.all] == [PROMISE]
