"""Accounts of exactly-once sinks on an enode: a reset is never undone by a commit that was on its way."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from ortoo.common.errors import Conflict
from ortoo.common.groups.sinks import SinkAccount, SinkIdentity, sink_group
from ortoo.enode.changes.kinds import OffsetsCommitted
from tests.contract.one_store import TOPIC
from tests.contract.pop_store import PopStore, play

GROUP = sink_group("copy")
NAMES = SinkIdentity("copy", "first")


def account(it: PopStore, group: str = GROUP) -> SinkAccount:
    """The stored account."""
    return SinkAccount.from_offset(it.store.offsets.of(TOPIC, group)[0])


async def commit(it: PopStore, batch_id: int, query: str = "first") -> None:
    """Commit a batch of a query."""
    offset = SinkAccount.of_query(query, batch_id).offset
    await it.store.sinks.commit(TOPIC, GROUP, {0: offset}, SinkIdentity("copy", query))


async def reset(it: PopStore, seen: SinkAccount) -> None:
    """Reset the account that an operator has seen."""
    await it.store.sinks.commit(TOPIC, GROUP, {0: replace(seen, is_reset=True).offset}, NAMES)


def test_an_account_keeps_its_names_and_time_over_crashes() -> None:
    """They are in the log, and in checkpoints."""

    async def scenario(it: PopStore) -> None:
        await commit(it, 0)
        await it.one.clock.sleep(5)
        at_ms = it.one.clock.now_ms()
        await commit(it, 1)
        for step in range(3):
            (found,) = it.store.sinks.list_all()
            assert (found.topic_id, found.group, found.sink) == (TOPIC, GROUP, NAMES)
            assert at_ms <= found.changed_at_ms <= at_ms + 1_000
            assert SinkAccount.from_offset(found.offset) == SinkAccount.of_query("first", 1)
            if step:
                await it.store.engine.housekeeping.checkpoint()
            await it.crash(step)
        assert list(it.store.sinks.list_all(TOPIC + 1)) == []

    play(scenario)


def test_a_commit_on_its_way_does_not_undo_a_reset() -> None:
    """Whichever of two simultaneous requests comes first, the query is refused from its next batch on."""

    async def scenario(it: PopStore) -> None:
        for order in (0, 1):
            query = f"first {order}"
            await commit(it, 4, query)
            seen = account(it)
            requests = [partial(reset, it, seen), partial(commit, it, 5, query)]
            answers = await asyncio.gather(*(requests[(one + order) % 2]() for one in range(2)), return_exceptions=True)
            for error in filter(None, answers):
                assert "an operator reset the sink" in str(error)
            assert account(it).is_reset
            with pytest.raises(Conflict, match="an operator reset the sink"):
                await commit(it, 6, query)
            await commit(it, 0, f"next {order}")
            assert account(it) == SinkAccount.of_query(f"next {order}", 0)
            with pytest.raises(Conflict, match="an operator reset the sink"):
                await commit(it, 6, query)
            with pytest.raises(Conflict, match="belongs to another query"):
                await commit(it, 6, "other")
            await reset(it, account(it))
        assert it.store.offsets.backward_commits == 0

    play(scenario)


def test_no_query_that_was_reset_continues_after_a_later_reset() -> None:
    """The enode knows each of them, also after a crash. A delayed reset of the first query changes nothing."""

    async def scenario(it: PopStore) -> None:
        queries = ("first", "second", "third")
        for number, query in enumerate(queries):
            await commit(it, 7, query)
            await reset(it, account(it))
            await it.crash(number)
            for former in queries[: number + 1]:
                with pytest.raises(Conflict, match="an operator reset the sink after batch 7"):
                    await commit(it, 8, former)
            (found,) = it.store.sinks.list_all()
            assert SinkAccount.from_offset(found.offset) == replace(SinkAccount.of_query(query, 7), is_reset=True)
        with pytest.raises(Conflict):
            await reset(it, SinkAccount.of_query("first", 7))
        with pytest.raises(Conflict, match="an operator reset the sink"):
            await commit(it, 8, "third")

    play(scenario)


def test_accounts_of_earlier_versions_are_listed_and_can_be_reset() -> None:
    """They have no names. A commit by an older client keeps the name of the sink."""

    async def scenario(it: PopStore) -> None:
        offset = SinkAccount.of_query("first", 3).offset
        await it.store.engine.store([OffsetsCommitted(TOPIC, GROUP, 0, ((0, offset),))])
        await it.store.offsets.commit(TOPIC, "consumers", {0: 0})
        (found,) = it.store.sinks.list_all(TOPIC)
        assert (found.offset, found.sink) == (offset, None)
        await it.store.sinks.commit(TOPIC, GROUP, {0: SinkAccount.of_query("first", 4).offset}, None)
        (found,) = it.store.sinks.list_all(TOPIC)
        assert found.sink is None
        await commit(it, 5)
        await it.store.sinks.commit(TOPIC, GROUP, {0: SinkAccount.of_query("first", 6).offset}, None)
        (found,) = it.store.sinks.list_all(TOPIC)
        assert found.sink == SinkIdentity("copy", "")

    play(scenario)
