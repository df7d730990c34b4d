"""The duties of the driver towards the protocol, which takes them for granted: each one through the real files.

The explorer has a driver of its own, so it does not find an error in this one.
"""

import asyncio
import errno
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ortoo.common.errors import NotLeader, Unavailable
from ortoo.enode.changes.pops import OPENING_SHIFT
from ortoo.enode.disk.clean_stop import read_clean_stop
from ortoo.enode.disk.durable_mark import DurableMark
from ortoo.enode.disk.hard_state_file import read_hard_state
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.leadership.replica_process import ReplicaProcess
from ortoo.enode.log.frame import FrameHeader, FrameKind
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.scan import walk
from ortoo.enode.log.segment import Segment, segment_name
from ortoo.enode.log.settings import FlushMode
from ortoo.enode.pops.lines import PopLines
from ortoo.enode.replication.protocol.identity import HardState
from ortoo.enode.replication.protocol.log_summary import LogBase
from ortoo.enode.replication.protocol.messages import (
    AppendAck,
    Frames,
    Heartbeat,
    LogMatched,
    LogMatchRequest,
    LogMatchResponse,
    RequestVote,
    Vote,
)
from ortoo.enode.rpc.leader_only import LeaderOnlyService
from ortoo.enode.store.batch_write import BatchWrite
from ortoo.enode.store.store import Store
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.v1.enode_pb2_grpc import EnodeServiceServicer
from ortoo.verification.store.workload import FOLDER
from tests.contract.one_store import QUEUES, TOPIC, batch
from tests.unit.enode.replication.real_replica import LEASE_GRANTED_S, THREE, TWO, Machine, RealReplica


def check_promises(replica: RealReplica) -> None:
    """Before each message, this start and the vote in the epoch of the message were durable."""
    durable: dict[int, tuple[int, int]] = {}
    assert replica.sent
    for one in replica.sent:
        if one.operations not in durable:
            kept = read_hard_state(replica.machine.durable_at(one.operations), FOLDER)
            assert kept is not None
            durable[one.operations] = kept.incarnation, kept.hard_state.epoch
        incarnation, epoch = durable[one.operations]
        assert incarnation == replica.own.incarnation, one
        assert epoch >= one.message.epoch, one


async def test_a_vote_is_durable_before_it_is_sent() -> None:
    """As a voter, as a candidate, as a leader and as a follower; also the number of the start is durable before."""
    machine = Machine()
    async with machine.start() as replica:
        await machine.clock.pass_time(LEASE_GRANTED_S)
        replica.driver.post(RequestVote(1, THREE))
        await replica.until(lambda: replica.messages(Vote))
        [vote] = replica.messages(Vote)
        assert (vote.epoch, vote.voter) == (1, replica.own)
        await replica.lead(2)
        replica.driver.post(RequestVote(3, THREE))
        await replica.follow(4, opening=10)
        check_promises(replica)
    kept = read_hard_state(machine.durable_at(len(machine.memory.operations)), FOLDER)
    assert kept is not None
    assert kept.hard_state == HardState(4, TWO)


async def test_each_opening_of_the_log_is_another_start() -> None:
    """Also in one process: votes and messages for an earlier opening do not count for the next one."""
    machine, starts = Machine(), list[int]()
    for number in range(3):
        async with machine.start() as replica:
            await machine.clock.pass_time(LEASE_GRANTED_S)
            replica.driver.post(RequestVote(number + 1, THREE))
            await replica.until(lambda: replica.messages(Vote))
            check_promises(replica)
            starts.append(replica.own.incarnation)
    async with machine.start() as replica:
        await replica.follow(4, opening=3)
    async with machine.start() as replica:
        await replica.follow(4, opening=3)  # no vote is written meanwhile
        check_promises(replica)
        starts.append(replica.own.incarnation)
    assert starts == sorted(set(starts))


async def test_frames_never_name_a_position_as_committed_that_no_majority_has() -> None:
    """Only the position that another replica has acknowledged is committed, whatever this disk has."""
    machine = Machine()
    async with machine.start() as replica:
        await replica.lead(1)
        acknowledged = replica.end
        for _ in range(3):
            first = len(replica.sent)
            for _ in range(2):
                await replica.log.append_protocol_frame(FrameKind.BEGIN, bytes(8))
                await replica.until(lambda: replica.driver.replica.log.flushed == replica.end)
            await replica.until(lambda: any(one.end == replica.end for one in replica.messages(Frames)))
            await machine.clock.pass_time(0.3)
            told = [one.message for one in replica.sent[first:] if isinstance(one.message, Frames | Heartbeat)]
            assert {type(one) for one in told} == {Frames, Heartbeat}
            assert max(one.committed for one in told) <= acknowledged < replica.end
            replica.acknowledge(1)
            assert replica.log.engine.appender.committed_position == replica.end
            acknowledged = replica.end


async def test_a_leader_whose_lease_ends_stops_to_read_before_it_stops_to_lead() -> None:
    """The open log asks for the lease at each read."""
    machine = Machine()
    async with machine.start() as replica:
        await replica.lead(1)
        replica.log.engine.check_open()
        await machine.clock.pass_time(0.9)
        assert replica.driver.leading_epoch == 1
        with pytest.raises(Unavailable, match="still leads"):
            replica.log.engine.check_open()
        replica.acknowledge(1)
        replica.log.engine.check_open()


async def test_an_answer_of_a_leader_waits_until_its_lease_is_renewed() -> None:
    """The services ask the process of the replica for the lease, also for an answer that reads nothing of the log."""

    class Services:
        async def QueryModes(self, request: None, context: None) -> str:
            return "answered"

    machine = Machine()
    async with machine.start() as replica:
        await replica.lead(1)
        process: Any = SimpleNamespace(driver=replica.driver, clock=machine.clock)
        door = LeaderOnlyService(NotLeader, partial(ReplicaProcess._may_read, process), machine.clock)
        door.service = cast(EnodeServiceServicer, Services())
        assert await door.QueryModes(None, None) == "answered"
        await machine.clock.pass_time(0.9)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(door.QueryModes(None, None))
            await machine.clock.pass_time(0.05)
            assert not waiting.done()
            replica.acknowledge(1)
            await machine.clock.pass_time(0.05)
            assert waiting.done()


async def test_each_leader_numbers_its_openings_above_those_of_all_earlier_leaders() -> None:
    """Leases of pops are numbered by them, so a lease of a former leader never matches a later one."""
    machine = Machine()
    async with machine.start() as replica:
        await replica.lead(1)
        own = replica.log.engine.appender.store_open
        await replica.follow(2, opening=own + 50)
        await flushed(replica, replica.receive(2, FrameKind.EPOCH))
        await machine.clock.pass_time(LEASE_GRANTED_S)
        await replica.lead(3)
        lines = PopLines(Store(replica.log.engine), machine.clock, first_number=0)
        assert lines.next_number() >= (own + 51) << OPENING_SHIFT
    assert [(one.leader_epoch, one.store_open) for one in headers(machine) if one.kind == FrameKind.EPOCH] == [
        (1, own),
        (2, own + 50),
        (3, own + 51),
    ]


async def test_a_leader_decides_by_the_folded_state_alone() -> None:
    """Its earlier term had a batch on its way, which the next leader truncated: the retry is not a duplicate of it.

    Leases that a crash lost count only for messages from before the term.
    """
    machine = Machine()
    async with machine.start() as replica:
        await replica.lead(1)
        store = Store(replica.log.engine)
        await replica.stored(1, store.put_topics([TopicCopy(TOPIC, "orders", QUEUES, 1)]))
        await replica.stored(1, store.append(TOPIC, 0, batch(b"kept", producer_id=9)))
        end, truncated = replica.end, batch(b"truncated", producer_id=9, first_sequence=1)
        lost = store.begin(BatchWrite(TOPIC, 0, truncated), FlushMode.SYNC)
        assert lost is not None
        await replica.until(lambda: replica.driver.replica.log.flushed > end)
        await replica.follow(2, opening=20, end=end)
        assert replica.end == end
        await flushed(replica, replica.receive(2, FrameKind.EPOCH))
        with pytest.raises(Unavailable, match="unknown"):
            await lost
        await replica.lead(3)
        queue = replica.log.engine.catalog.queue((TOPIC, 0))
        assert queue.end_at_opening == queue.end_offset == 1
        result = await replica.stored(3, Store(replica.log.engine).append(TOPIC, 0, truncated))
        assert (result.first_offset, queue.end_offset) == (1, 2)


async def flushed(replica: RealReplica, end: int) -> None:
    """Wait until a follower has acknowledged its log up to a position."""
    await replica.until(lambda: any(one.flushed >= end for one in replica.messages(AppendAck)))


def headers(machine: Machine) -> Sequence[FrameHeader]:
    """All frames of the first segment."""
    with SegmentFiles(machine.disk) as files:
        segment = Segment(files, FOLDER, 0, 0)
        found = walk(segment.read, 0, segment.size_bytes(), bodies_from=0)
        return [one for one in found if isinstance(one, FrameHeader)]


async def followed(machine: Machine, frames: int) -> int:
    """Follow replica 2 in epoch 1, get its frames, flush them, and stop; the end of the log."""
    async with machine.start() as replica:
        await replica.follow(1, opening=3)
        end = replica.receive(1, FrameKind.EPOCH)
        for _ in range(frames):
            end = replica.receive(1)
        await flushed(replica, end)
    return end


async def test_no_marker_of_a_clean_stop_contains_uncommitted_frames() -> None:
    """The frames may be truncated, and the state in the marker cannot be taken back."""
    machine = Machine()
    end = await followed(machine, 3)
    assert read_clean_stop(machine.disk, FOLDER) is None
    async with machine.start() as replica:
        await replica.follow(1, opening=3)
        replica.beat(1, committed=end)
        await flushed(replica, replica.receive(1))
        assert replica.log.engine.appender.committed_position == end < replica.end
    assert read_clean_stop(machine.disk, FOLDER) is None
    async with machine.start() as replica:
        await replica.follow(1, opening=3)
        replica.beat(1, committed=replica.end)
        assert replica.log.engine.appender.committed_position == replica.end > end
    clean = read_clean_stop(machine.disk, FOLDER)
    assert clean is not None
    assert clean.end_position == replica.end


async def test_frames_of_a_failed_sync_are_written_again_before_they_are_acknowledged() -> None:
    """The page cache shows them to the next opening, but no later sync writes them to the disk."""
    machine = Machine()
    end = await followed(machine, 1)
    async with machine.start() as replica:
        await replica.follow(1, opening=3)
        machine.disk.fail_sync(error=errno.EIO)
        replica.receive(1)
        await replica.until(replica.driver.ended.done)
    async with machine.start() as replica:
        assert replica.end > end
        await replica.follow(1, opening=3)
        claimed = replica.driver.replica.log.flushed
    assert claimed > end
    machine.lose_power()
    async with machine.start() as replica:
        assert (replica.end, replica.log.former_end) == (claimed, 0)


async def test_a_truncated_log_does_not_claim_its_former_end() -> None:
    """Not after a loss of power at any moment: the durable mark would otherwise count the truncated frames as lost."""
    machine = Machine()
    end = await followed(machine, 3)
    kept_end = headers(machine)[1].end_position
    with closing(DurableMark(machine.disk, FOLDER)) as mark:
        mark.write(end)
    async with machine.start() as replica:
        first = len(machine.memory.operations)
        await replica.follow(1, opening=3)
        replica.driver.post(Heartbeat(2, THREE, 1, 0, kept_end, 0, 0))
        await replica.until(lambda: replica.messages(LogMatchRequest)[-1].epoch == 2)
        base = LogBase(0, 0, replica.driver.replica.log.configuration)
        stream = replica.messages(LogMatchRequest)[-1].stream
        replica.driver.post(LogMatchResponse(2, replica.own, stream, 1, kept_end, base))
        await replica.until(lambda: replica.messages(LogMatched)[-1].epoch == 2)
        last = len(machine.memory.operations)
    operations, ends = machine.memory.operations, list[int]()
    for count in range(first, last + 1):
        machine.memory = MemoryDisk.replayed(operations[:count])
        machine.lose_power()
        async with machine.start() as replica:
            assert replica.log.former_end == 0
            assert replica.end in (kept_end, end)
            ends.append(replica.end)
    assert ends == sorted(ends, reverse=True)
    assert {ends[0], ends[-1]} == {kept_end, end}


async def test_a_repaired_frame_is_durable_before_it_counts_as_repaired() -> None:
    """Otherwise a loss of power would bring the damage back, after the reader has got the frame."""
    machine = Machine()
    await followed(machine, 3)
    damaged = headers(machine)[1]
    async with machine.start() as replica:
        whole = await replica.log.bytes.read_copy(damaged.position, damaged.position + 1)
        file = machine.disk.open(FOLDER / segment_name(0))
        file.write(damaged.position, [bytes(len(whole))])
        file.sync_data()
        assert len(headers(machine)) == 3
        await replica.log.bytes.rewrite_frame(damaged.position, whole)
    machine.lose_power()
    assert len(headers(machine)) == 4
