"""Transactions: visible if and only if committed, checked when abandoned, finally parked, never lost."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ortoo.client import (
    Client,
    Conflict,
    ConsumerSettings,
    Invalid,
    Message,
    NotFound,
    TransactionCheck,
    TransactionVerdict,
    blocking,
    connect,
)
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.records.batch import encode, open_batch
from ortoo.enode.changes.halves import HalfVerdict as StoreVerdict
from ortoo.enode.changes.halves import VerdictOrigin
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from ortoo.verification.servers.lone_enode import SMALL_STORE, open_single_enode, topic

QUICK: dict[str, Any] = {
    "transaction_check_after_ms": 200,
    "transaction_check_interval_ms": 50,
    "transaction_checks_max": 6,
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """One of each role with frequent checks, with the topic t of one queue."""
    async with open_cluster(tmp_path, settings={"enode": QUICK}) as opened:
        await opened.create_topic("t", queues=1)
        yield opened


async def seen(mq: Client, count: int) -> list[bytes]:
    """The first bodies in the topic, when there are `count`."""
    found = []
    queue = (await mq.admin.describe_topic("t")).queues[0].queue
    async with asyncio.timeout(60):
        async for batch in mq.fetch(queue, follow=True):
            found += batch.bodies()
            if len(found) >= count:
                break
    return found


async def unknown(check: TransactionCheck) -> TransactionVerdict:
    """A producer whose checker does not know the outcome."""
    return TransactionVerdict.UNKNOWN


async def test_only_committed_messages_are_seen(cluster: InProcessCluster) -> None:
    """A commit shows the messages, a rollback never; each verdict may be repeated, not changed (E-079, E-223, G7)."""
    async with connect(cluster.address) as mq, mq.transactional_producer("t", "p", unknown) as producer:
        kept = await producer.begin(Message(b"kept", "tag", ("k",), properties={"a": "b"}), Message(b"too"))
        dropped = await producer.begin(Message(b"dropped"))
        assert (await mq.admin.describe_topic("t")).queues[0].end_offset == 0
        await dropped.rollback()
        await dropped.rollback()
        await kept.commit()
        await kept.commit()
        with pytest.raises(Conflict, match="rolled back already"):
            await dropped.commit()
        with pytest.raises(Conflict, match="committed already"):
            await kept.rollback()
        with pytest.raises(Invalid):
            await mq.admin.end_transaction("nonsense", TransactionVerdict.COMMIT)
        async with mq.consumer("g", "t", ConsumerSettings(from_beginning=True)) as consumer, asyncio.timeout(60):
            found = []
            async for message in consumer:
                found.append(message)
                if len(found) == 2:
                    break
        assert [it.body for it in found] == [b"kept", b"too"]
        assert tuple(it.message_id for it in found) == kept.message_ids
        assert (found[0].tag, found[0].keys, found[0].properties) == ("tag", ("k",), {"a": "b"})
        assert await mq.admin.list_transactions() == []


async def test_a_block_commits_or_rolls_back(cluster: InProcessCluster) -> None:
    """The end of the block commits, an exception in it rolls back and propagates."""
    async with connect(cluster.address) as mq, mq.transactional_producer("t", "p", unknown) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(Message(b"no")):
                raise ZeroDivisionError
        async with producer.transaction(Message(b"yes")):
            pass
        assert await seen(mq, 1) == [b"yes"]
        assert await mq.admin.list_transactions() == []


async def test_a_forgotten_transaction_is_asked_about_at_any_producer_of_the_group(cluster: InProcessCluster) -> None:
    """The checker of another producer commits the abandoned transaction; one of another group is not asked."""
    asked: list[TransactionCheck] = []

    async def commit(check: TransactionCheck) -> TransactionVerdict:
        asked.append(check)
        return TransactionVerdict.UNKNOWN if len(asked) == 1 else TransactionVerdict.COMMIT

    async def wrong(check: TransactionCheck) -> TransactionVerdict:
        raise AssertionError("asked about another group's transaction")

    async with connect(cluster.address) as mq:
        async with mq.transactional_producer("t", "p", unknown) as producer:
            begun = await producer.begin(Message(b"forgotten", keys=("17",)))
        async with (
            mq.transactional_producer("t", "p", commit),
            mq.transactional_producer("t", "other", wrong),
        ):
            assert await seen(mq, 1) == [b"forgotten"]
        assert {it.transaction_id for it in asked} == {begun.transaction_id}
        assert (asked[0].topic, asked[0].messages[0].keys) == ("t", ("17",))
        # While the commit is on its way the next check may be due: then the producer is asked once more, and counted.
        assert [it.checks for it in asked] == sorted({it.checks for it in asked})


async def test_after_the_last_check_a_transaction_is_parked_and_can_be_resumed(cluster: InProcessCluster) -> None:
    """Without a verdict it is parked visibly; an operator resumes the checks, or decides (E-223)."""
    async with connect(cluster.address) as mq, asyncio.timeout(60):
        async with mq.transactional_producer("t", "p", unknown) as producer:
            await producer.begin(Message(b"a"))
            await producer.begin(Message(b"b"))
            while len(parked := await mq.admin.list_transactions(parked_only=True)) < 2:
                await cluster.clock.sleep(0.02)
        assert [(it.checks, it.producer_group, it.queue.topic) for it in parked] == [(6, "p", "t")] * 2

        async def commit(check: TransactionCheck) -> TransactionVerdict:
            return TransactionVerdict.COMMIT

        async with mq.transactional_producer("t", "p", commit) as producer:
            await producer.registered.wait()
            await mq.admin.resume_transaction(parked[0].transaction_id)
            assert await seen(mq, 1) == [b"a"]
            await mq.admin.end_transaction(parked[1].transaction_id, TransactionVerdict.ROLLBACK)
            with pytest.raises(NotFound):
                await mq.admin.resume_transaction(parked[1].transaction_id)
        assert await mq.admin.list_transactions() == []


async def test_a_lost_answer_begins_no_second_transaction(tmp_path: Path) -> None:
    """The same key is the same transaction."""
    async with open_single_enode(tmp_path, topic(7)) as enode:
        transactions = enode.running.appends.transactions
        batch = encode([Message(b"x")], now_ms=1)
        both = await asyncio.gather(*(transactions.begin(7, 0, batch, producer_group="p", key=5) for _ in range(2)))
        assert both[0] == both[1] == await transactions.begin(7, 0, batch, producer_group="p", key=5)
        assert len(enode.running.store.halves.select()) == 1


async def test_what_was_accepted_is_followed_up_when_the_caller_goes_away(tmp_path: Path) -> None:
    """A producer that dies during a call leaves a transaction that is checked, or a verdict that is final."""
    async with open_single_enode(tmp_path, topic(7), **QUICK) as enode, asyncio.timeout(60):
        transactions = enode.running.appends.transactions
        transactions.listeners.add({"p"}, lambda check: None)
        batch = encode([Message(b"x")], now_ms=1)
        await cut_short(transactions.begin(7, 0, batch, producer_group="p"))
        half = await transactions.begin(7, 0, batch, producer_group="p")
        await cut_short(transactions.end(7, half.number, StoreVerdict.COMMITTED, VerdictOrigin.PRODUCER))
        with pytest.raises(Conflict):
            await transactions.end(7, half.number, StoreVerdict.ROLLED_BACK, VerdictOrigin.OPERATOR)
        while not (listed := enode.running.store.halves.select(parked_only=True)):
            await SystemClock().sleep(0.02)
        assert [one.number for one in listed] == [half.number - 1]


async def cut_short(call: Coroutine[Any, Any, Any]) -> None:
    """Begin a call and cancel it before its answer."""
    async with Background("caller") as background:
        background.spawn("call", call)
        await SystemClock().sleep(0)


async def test_verdicts_survive_restarts_and_retention(tmp_path: Path) -> None:
    """Open transactions outlive their segments and the process; ended ones stay ended (G7)."""
    small = dataclasses.replace(SMALL_STORE, segment_bytes=64 << 10, retention_bytes=256 << 10, recent_bytes=0)
    async with open_single_enode(tmp_path, topic(7), store=small) as enode:
        running, transactions = enode.running, enode.running.appends.transactions
        batches = [encode([Message(b"%d" % number)], now_ms=1) for number in range(4)]
        begun = [await transactions.begin(7, 0, one, producer_group="p", check_after_ms=600_000) for one in batches]
        await transactions.end(7, begun[1].number, StoreVerdict.COMMITTED, VerdictOrigin.PRODUCER)
        await transactions.end(7, begun[2].number, StoreVerdict.ROLLED_BACK, VerdictOrigin.OPERATOR)
        for _ in range(3):
            for _ in range(40):
                await running.store.append(7, 1, encode([Message(bytes(20_000))], now_ms=1))
            await running.store.engine.housekeeping.apply_retention()
        assert running.store.describe().log_begin_position > 64 << 10
    async with open_single_enode(tmp_path, topic(7), store=small) as enode:
        transactions = enode.running.appends.transactions
        assert [one.number for one in enode.running.store.halves.select()] == [begun[0].number, begun[3].number]
        with pytest.raises(Conflict):
            await transactions.end(7, begun[2].number, StoreVerdict.COMMITTED, VerdictOrigin.PRODUCER)
        await transactions.end(7, begun[1].number, StoreVerdict.COMMITTED, VerdictOrigin.PRODUCER)
        await transactions.end(7, begun[3].number, StoreVerdict.COMMITTED, VerdictOrigin.PRODUCER)
        begin = enode.running.store.describe_queues(7)[0].begin_offset
        fetched = await enode.running.store.fetch(7, 0, begin)
        assert [it.body for one in fetched.batches for it in open_batch(one.batch)][-1] == b"3"
        assert enode.running.store.describe_queues(7)[0].end_offset == 2


async def test_the_blocking_client_has_transactions_too(cluster: InProcessCluster) -> None:
    """Begin, commit and a checker on a thread."""

    def work() -> None:
        with blocking.connect(cluster.address) as mq:
            with (
                mq.transactional_producer("t", "p", lambda check: TransactionVerdict.COMMIT) as producer,
                producer.transaction(Message(b"one")),
            ):
                pass
            assert mq.admin.list_transactions() == []

    await asyncio.to_thread(work)
    async with connect(cluster.address) as mq:
        assert await seen(mq, 1) == [b"one"]
