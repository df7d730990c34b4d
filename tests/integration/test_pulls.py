"""Pull consumers at the protocol level: pulls, locks and offsets through a snode."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.client import connect
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.records.batch import open_batch
from ortoo.v1 import failure_pb2, pull_pb2, topic_pb2
from tests.integration.session_client import SessionClient
from tests.integration.snode_calls import Snode, batch_request, open_snode_cluster, queue


async def pull(running: Snode, offset: int = 0, **how: Any) -> pull_pb2.PullResponse:
    """Pull from queue 0 of t."""
    answer = await running.consumer.Pull(pull_pb2.PullRequest(group="g", queue=queue("t"), offset=offset, **how))
    assert isinstance(answer, pull_pb2.PullResponse)
    return answer


def bodies(answer: pull_pb2.PullResponse) -> list[tuple[int, bytes]]:
    """(offset, body) of each message of a pull."""
    found = []
    for part in answer.batches:
        view = open_batch(batch_of(part.batch))
        rows = memoryview(part.rows).cast("i").tolist() or range(view.count)
        gathered = len(rows) == view.count
        found += [
            (part.first_offset + row, view.message(number if gathered else row).body) for number, row in enumerate(rows)
        ]
    return found


async def refusal(call: Any) -> grpc.StatusCode:
    """The status with which a call is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code()


async def test_a_pull_brings_what_is_asked_and_no_more(tmp_path: Path) -> None:
    """Messages come in order of offset, at most the requested number, from batches of any size."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        everything = [b"%03d" % number for number in range(300)]
        await running.produce(
            batch_request(1, queue("t"), everything[:200]), batch_request(2, queue("t"), everything[200:])
        )
        answer = await pull(running, 190)
        assert answer.status == pull_pb2.PULL_STATUS_FOUND
        assert bodies(answer) == [(number, everything[number]) for number in range(190, 222)]
        assert answer.next_offset == 222
        assert bodies(await pull(running, 298)) == [(298, b"298"), (299, b"299")]
        first = await pull(running, 0, messages_max=3)
        assert bodies(first) == [(0, b"000"), (1, b"001"), (2, b"002")]
        assert len(first.batches[0].batch.records) < 300


async def test_a_long_poll_ends_with_the_first_message(tmp_path: Path) -> None:
    """E-154: a pull at the end returns with the next message. Without one it returns after its timeout."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        began_s = running.cluster.clock.monotonic_s()
        waiting = asyncio.get_running_loop().create_task(pull(running, wait_ms=60_000))
        await running.cluster.clock.sleep(0.3)
        assert not waiting.done()
        await running.publish("t", b"a")
        assert bodies(await waiting) == [(0, b"a")]
        assert running.cluster.clock.monotonic_s() - began_s < 30
        answer = await pull(running, 1, wait_ms=100)
        assert (answer.status, answer.next_offset) == (pull_pb2.PULL_STATUS_NO_NEW, 1)


async def test_illegal_offsets_come_back_corrected(tmp_path: Path) -> None:
    """E-155: beyond the end the answer is the end. At the end nothing is new. A skipping filter reports it."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        await running.publish("t", b"a", b"b", tag="x")
        beyond = await pull(running, 9)
        assert (beyond.status, beyond.next_offset, beyond.end_offset) == (pull_pb2.PULL_STATUS_OFFSET_ILLEGAL, 2, 2)
        assert (await pull(running, 2)).status == pull_pb2.PULL_STATUS_NO_NEW
        other = await pull(running, 0, tag_expression="y")
        assert (other.status, other.next_offset) == (pull_pb2.PULL_STATUS_NO_MATCH, 2)
        assert bodies(await pull(running, 0, tag_expression="x||y")) == [(0, b"a"), (1, b"b")]


async def test_pulls_name_the_subscription_they_are_for(tmp_path: Path) -> None:
    """E-053: a version newer than the registered one is a Conflict, no subscription at all is NotFound."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        assert await refusal(pull(running, subscription_version=1)) is grpc.StatusCode.NOT_FOUND
        async with SessionClient(running, "a") as client:
            await client.consume("g", "t", version=7)
            assert await refusal(pull(running, subscription_version=8)) is grpc.StatusCode.FAILED_PRECONDITION
            assert (await pull(running, subscription_version=7)).status == pull_pb2.PULL_STATUS_NO_NEW


async def test_offsets_are_kept_by_enode_topic_group_and_queue(tmp_path: Path) -> None:
    """E-100, E-101, E-102, E-103: a committed offset is read back, or -1 without one. A smaller one is stored too."""
    async with open_snode_cluster(tmp_path, enodes=2) as running, asyncio.timeout(60):
        await running.topic("t", 2)
        queues = [queue("t", number, enode) for enode in ("enode-0", "enode-1") for number in (0, 1)]
        for one in queues:
            await running.produce(batch_request(1, one, [b"x"] * 100))

        async def commit(offsets: list[int], group: str = "g") -> list[str]:
            rows = [pull_pb2.ConsumerOffset(queue=one, offset=o) for one, o in zip(queues, offsets, strict=True)]
            request = pull_pb2.CommitConsumerOffsetsRequest(group=group, offsets=rows)
            return [one.failure.message for one in (await running.consumer.CommitOffsets(request)).refused]

        async def stored(group: str = "g") -> list[int]:
            request = pull_pb2.QueryConsumerOffsetsRequest(group=group, topic="t")
            return [one.offset for one in (await running.consumer.QueryOffsets(request)).offsets]

        assert await stored() == [-1] * 4
        await commit([1, 2, 3, 4])
        await commit([9, 9, 9, 9], "h")
        assert await stored() == [1, 2, 3, 4]
        await commit([100, 2, 3, 4])
        await commit([50, 2, 3, 4])
        assert await stored() == [50, 2, 3, 4]
        refused = await commit([101, 2, 3, 4])
        assert len(refused) == 2  # those of the same enode
        assert "offset 101 of queue 0; the queue ends at 100" in refused[0]
        assert not await commit([1 << 60, 2, 3, 4], "%SINK%a")  # the batch number of a sink
        assert await stored("%SINK%a") == [1 << 60, 2, 3, 4]
        assert await stored() == [50, 2, 3, 4]
        wrong = pull_pb2.CommitConsumerOffsetsRequest(group="", offsets=[pull_pb2.ConsumerOffset(queue=queues[0])])
        assert await refusal(running.consumer.CommitOffsets(wrong)) is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_topic_that_cannot_be_read_costs_no_other_topic_its_offsets(tmp_path: Path) -> None:
    """G10: of a commit for several topics the existing ones are stored. The others are refused in the answer."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        await running.produce(batch_request(1, queue("t"), [b"x"] * 3))
        await running.create_topic("closed", read_queue_count=1, permission=topic_pb2.PERMISSION_WRITE_ONLY)
        queues = [queue("nobody-made-it"), queue("t"), queue("closed"), queue("t", 9)]
        rows = [pull_pb2.ConsumerOffset(queue=one, offset=3) for one in queues]
        request = pull_pb2.CommitConsumerOffsetsRequest(group="g", offsets=rows)
        refused = (await running.consumer.CommitOffsets(request)).refused
        assert sorted((one.queue.topic, one.queue.queue_id) for one in refused) == [
            ("closed", 0),
            ("nobody-made-it", 0),
            ("t", 9),
        ]
        found = await running.consumer.QueryOffsets(pull_pb2.QueryConsumerOffsetsRequest(group="g", queues=queues))
        assert [(one.queue.topic, one.offset) for one in found.offsets] == [("t", 3)]
        assert len(found.refused) == 3


async def test_a_queue_without_lag_hides_nothing_of_another(tmp_path: Path) -> None:
    """The lag is computed for each queue: the offset of one does not hide the lag of another."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t", 2)
        await running.produce(batch_request(1, queue("t", 0), [b"x"] * 3))
        await running.produce(batch_request(1, queue("t", 1), [b"a", b"b", b"c"]))
        rows = [pull_pb2.ConsumerOffset(queue=queue("t", number), offset=at) for number, at in ((0, 3), (1, 0))]
        await running.consumer.CommitOffsets(pull_pb2.CommitConsumerOffsetsRequest(group="g", offsets=rows))
        async with connect(running.cluster.address) as mq:
            assert (await mq.admin.describe_lag("g", "t")).lag_messages == 3
            [reason] = (await mq.admin.operations.explain_consumption("g", "t")).reasons
        assert reason.name == "no consumers"
        assert "3 messages wait" in reason.observed


async def test_first_commits_at_the_same_moment_are_all_kept(tmp_path: Path) -> None:
    """E-105: of 64 concurrent first commits for 64 queues none is lost."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t", 64)
        for number in range(64):
            await running.produce(batch_request(number, queue("t", number), [b"x"] * 64))
        await asyncio.gather(
            *(
                running.consumer.CommitOffsets(
                    pull_pb2.CommitConsumerOffsetsRequest(
                        group="g", offsets=[pull_pb2.ConsumerOffset(queue=queue("t", number), offset=number)]
                    )
                )
                for number in range(64)
            )
        )
        answer = await running.consumer.QueryOffsets(pull_pb2.QueryConsumerOffsetsRequest(group="g", topic="t"))
        assert [one.offset for one in answer.offsets] == list(range(64))


async def lock(running: Snode, client_id: str, *queue_ids: int, **who: Any) -> pull_pb2.LockQueuesResponse:
    """Request locks."""
    request = pull_pb2.LockQueuesRequest(
        group="g", client_id=client_id, queues=[queue("t", number) for number in queue_ids], **who
    )
    answer = await running.consumer.LockQueues(request)
    assert isinstance(answer, pull_pb2.LockQueuesResponse)
    return answer


async def test_locks_are_taken_through_any_snode(tmp_path: Path) -> None:
    """E-127, E-129, E-130, E-132: the free subset is granted, foreign unlocks do nothing, unlocked is free."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t", 3)
        await running.produce(batch_request(1, queue("t", 1), [b"x"] * 5))
        assert [one.queue.queue_id for one in (await lock(running, "a", 0, 1)).granted] == [0, 1]
        answer = await lock(running, "b", 1, 2)
        assert [one.queue.queue_id for one in answer.granted] == [2]
        assert [(one.queue.queue_id, one.owner) for one in answer.refused] == [(1, "a")]
        assert 0 < answer.refused[0].remaining_ms <= answer.lifetime_ms == 60_000
        free = pull_pb2.UnlockQueuesRequest(group="g", client_id="b", queues=[queue("t", 1)])
        assert not (await running.consumer.UnlockQueues(free)).released
        free = pull_pb2.UnlockQueuesRequest(group="g", client_id="a", queues=[queue("t", 1)])
        assert len((await running.consumer.UnlockQueues(free)).released) == 1
        [granted] = (await lock(running, "b", 1)).granted
        late = pull_pb2.ConsumerOffset(queue=queue("t", 1), offset=5, generation=granted.generation - 1)
        request = pull_pb2.CommitConsumerOffsetsRequest(group="g", offsets=[late])
        assert await refusal(running.consumer.CommitOffsets(request)) is grpc.StatusCode.ABORTED
        # Nothing of it is stored, and each queue has its own error: an owner without a lock must not get an error about
        # the topic.
        request.offsets.insert(0, pull_pb2.ConsumerOffset(queue=queue("nobody-made-it"), offset=3))
        refused = (await running.consumer.CommitOffsets(request)).refused
        assert {one.queue.topic: one.failure.kind for one in refused} == {
            "nobody-made-it": failure_pb2.FAILURE_KIND_NOT_FOUND,
            "t": failure_pb2.FAILURE_KIND_FENCED,
        }
        assert await refusal(pull_under(running, 1, granted.generation - 1)) is grpc.StatusCode.ABORTED
        assert (await pull_under(running, 1, granted.generation)).status == pull_pb2.PULL_STATUS_FOUND


async def test_a_topic_that_is_gone_costs_no_other_topic_its_locks(tmp_path: Path) -> None:
    """A consumer renews all its locks in one call, and releases them in one: each queue has its own answer."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        queues = [queue("gone"), queue("t"), queue("t", 9)]
        request = pull_pb2.LockQueuesRequest(group="g", client_id="a", queues=queues)
        answer = await running.consumer.LockQueues(request)
        assert [(one.queue.topic, one.queue.queue_id) for one in answer.granted] == [("t", 0)]
        refused = {(one.queue.topic, one.queue.queue_id): one.failure.kind for one in answer.refused}
        assert refused == {
            ("gone", 0): failure_pb2.FAILURE_KIND_NOT_FOUND,
            ("t", 9): failure_pb2.FAILURE_KIND_INVALID,
        }
        free = pull_pb2.UnlockQueuesRequest(group="g", client_id="a", queues=queues)
        assert [one.topic for one in (await running.consumer.UnlockQueues(free)).released] == ["t"]
        nothing = pull_pb2.LockQueuesRequest(group="g", client_id="a", queues=[queue("gone")])
        assert await refusal(running.consumer.LockQueues(nothing)) is grpc.StatusCode.NOT_FOUND


async def pull_under(running: Snode, queue_id: int, generation: int) -> pull_pb2.PullResponse:
    """Pull under a lock."""
    request = pull_pb2.PullRequest(group="g", queue=queue("t", queue_id), generation=generation)
    answer = await running.consumer.Pull(request)
    assert isinstance(answer, pull_pb2.PullResponse)
    return answer


async def test_locks_of_a_session_are_free_when_it_ends(tmp_path: Path) -> None:
    """A client that disconnects frees its queues for the next one at once, not after 60 s."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t", 2)
        async with SessionClient(running, "a") as client:
            assert len((await lock(running, "", 0, 1, session_id=client.session_id)).granted) == 2
            assert not (await lock(running, "b", 0, 1)).granted
        while len((await lock(running, "b", 0, 1)).granted) < 2:
            await running.cluster.clock.sleep(0.01)


async def test_offsets_are_found_by_time(tmp_path: Path) -> None:
    """E-115: the time of the k-th message gives k, an earlier time 0, a time after all messages the end."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        stored = []
        for number in range(5):
            stored += list((await running.produce(batch_request(number, queue("t"), [b"x"]))).values())
            await running.cluster.clock.sleep(0.002)

        async def at(time_ms: int) -> int:
            request = pull_pb2.SearchOffsetRequest(queue=queue("t"), time_ms=time_ms)
            return int((await running.consumer.SearchOffset(request)).offset)

        assert [await at(one.stored_at_ms) for one in stored] == [0, 1, 2, 3, 4]
        assert await at(0) == 0
        assert await at(stored[-1].stored_at_ms + 1) == 5


async def test_the_bytes_of_queues_are_measured(tmp_path: Path) -> None:
    """Each queue ends where its bytes reach the limit; a queue that cannot be measured does not fail the others."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t", 2)
        for number in range(5):
            await running.produce(batch_request(number, queue("t"), [bytes(1_000)]))

        async def measured(*starts: tuple[topic_pb2.Queue, int, int]) -> pull_pb2.MeasureQueuesResponse:
            request = pull_pb2.MeasureQueuesRequest(
                queues=[
                    pull_pb2.MeasuredQueue(queue=one, from_offset=first, bytes_max=bytes_max)
                    for one, first, bytes_max in starts
                ]
            )
            return await running.consumer.MeasureQueues(request)

        (whole,) = (await measured((queue("t"), 0, 1 << 40))).sizes
        assert whole.end_offset == 5
        assert whole.size_bytes > 5_000
        one_bytes = whole.size_bytes // 5
        seen = await measured((queue("t"), 1, 2 * one_bytes), (queue("t", 1), 0, 9), (queue("none"), 0, 9))
        assert [(one.queue.queue_id, one.end_offset, one.size_bytes) for one in seen.sizes] == [
            (0, 3, 2 * one_bytes),
            (1, 0, 0),
        ]
        assert [(one.queue.topic, one.failure.kind) for one in seen.refused] == [
            ("none", failure_pb2.FAILURE_KIND_NOT_FOUND)
        ]
        for wrong in (((queue("t"), -1, 1),), ((queue("t"), 0, -1),), ((queue("t"), 0, 1), (queue("t"), 1, 1))):
            assert await refusal(measured(*wrong)) is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_topic_nobody_made_and_a_queue_that_is_not_there_are_named(tmp_path: Path) -> None:
    """E-104: invalid requests are refused with the field."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        assert await refusal(pull(running)) is grpc.StatusCode.NOT_FOUND
        await running.topic("t")
        assert await refusal(pull(running, -1)) is grpc.StatusCode.INVALID_ARGUMENT
        assert await refusal(pull(running, messages_max=5_000)) is grpc.StatusCode.INVALID_ARGUMENT
        for empty in (queue(""), queue("t", 0, "")):
            row = pull_pb2.ConsumerOffset(queue=empty, offset=1)
            nothing = pull_pb2.CommitConsumerOffsetsRequest(group="g", offsets=[row])
            assert await refusal(running.consumer.CommitOffsets(nothing)) is grpc.StatusCode.INVALID_ARGUMENT
        gone = pull_pb2.QueryConsumerOffsetsRequest(group="g", queues=[queue("t", 9)])
        assert await refusal(running.consumer.QueryOffsets(gone)) is grpc.StatusCode.INVALID_ARGUMENT
        back = pull_pb2.NackMessagesRequest(group="g", queue=queue("t"), offsets=[0])
        assert await refusal(running.consumer.NackMessages(back)) is grpc.StatusCode.OUT_OF_RANGE
