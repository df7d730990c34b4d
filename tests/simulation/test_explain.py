"""`ortoo explain` and `ortoo delivery`: the state of each message, and why nothing is consumed."""

from typing import Any

import pytest

from ortoo.client import Client, ConsumerSettings, Message, PopSettings, Sql
from ortoo.snode.pop.dead_letters import CHUNK_ROWS, DeadLetters
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from tests.simulation.scripted_cluster import ScriptedCluster, play


async def states(client: Client, **options: Any) -> list[tuple[int, str, int]]:
    """(offset, state, attempt) of each message of topic t for group g."""
    found = await client.admin.operations.list_deliveries("g", "t", **options)
    assert not found.unreachable_enodes
    return [(one.offset, one.state, one.attempt) for one in found.messages]


async def why(client: Client, message_id: str = "") -> dict[str, str]:
    """Name of each reason to the observation and the remedy."""
    found = await client.admin.operations.explain_consumption("g", "t", message_id)
    return {one.name: f"{one.observed} → {one.remedy}" for one in found.reasons}


def test_each_message_of_a_group_that_pops_has_its_row() -> None:
    """Waiting, leased to a consumer until a time, delayed with its error, acknowledged, parked with the reason."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            async with client.producer("t") as producer:
                sent = [await producer.send(b"%d" % number) for number in range(5)]
            assert "unknown group" in await why(client)
            settings = PopSettings(invisible_ms=30_000, renew_max_ms=0, messages_max=1)
            async with client.pop_consumer("g", "t", "*", settings) as consumer:
                [acknowledged] = await consumer.pop()
                await acknowledged.ack()
                [returned] = await consumer.pop()
                await returned.nack(60_000, error="no such customer")
                [_] = await consumer.pop()
                expected = [(1, "delayed", 1), (2, "leased", 1), (3, "waiting", 0), (4, "waiting", 0)]
                assert await states(client) == expected
                assert await states(client, from_offset=2, to_offset=4) == expected[1:3]
                rows = (await client.admin.operations.list_deliveries("g", "t", from_offset=1)).messages
                assert (rows[0].error, rows[0].consumer) == ("no such customer", rows[1].consumer)
                assert rows[1].consumer
                assert 0 < rows[1].until_ms - stage.clock.now_ms() <= 30_000
                assert 30_000 < rows[0].until_ms - stage.clock.now_ms() <= 60_000
                assert set(await why(client, sent[0].message_id)) == {"acknowledged"}
                assert "no such customer" in (await why(client, sent[1].message_id))["delayed"]
                assert rows[1].consumer in (await why(client, sent[2].message_id))["leased"]
                assert "queued" in await why(client, sent[3].message_id)
            async with client.pop_consumer("g", "t", "*", PopSettings(attempts_max=1)) as consumer:
                for one in await consumer.pop():
                    await one.nack(0, error="broken")
                while "parked" not in await why(client, sent[3].message_id):
                    await consumer.pop(wait_ms=500)
                assert "dead letter after 1 attempts: attempts" in (await why(client, sent[3].message_id))["parked"]
                assert "ortoo dlq replay g" in (await why(client, sent[3].message_id))["parked"]

    play(script)


def test_messages_of_a_group_that_commits_offsets_are_outstanding() -> None:
    """Those behind its offset, whether a consumer has them or not. A leased one has a client, and is popped."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            async with client.producer("t") as producer:
                for number in range(3):
                    await producer.send(b"%d" % number)
            async with client.consumer("g", "t", ConsumerSettings(from_beginning=True)) as consumer:
                first = await anext(aiter(consumer))
                first.ack()
                while (found := await states(client)) != [(1, "outstanding", 0), (2, "outstanding", 0)]:
                    assert {state for _, state, _ in found} == {"outstanding"}
                    await stage.clock.sleep(0.2)

    play(script)


def test_a_group_that_does_not_consume_is_told_why() -> None:
    """No consumer, another topic's subscription, a tag filter, a disabled group, no backlog."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            for topic in ("t", "u"):
                await client.admin.ensure_topic(topic, queue_count=1)
            await client.admin.put_group("g")
            async with client.producer("t") as producer:
                receipt = await producer.send(Message(b"red", tag="red"))
                assert "no consumers" in await why(client)
                async with client.consumer("g", {"u": "*"}):
                    await stage.clock.sleep(2)
                    assert "not subscribed" in await why(client)
                async with client.consumer("g", {"t": "blue"}):
                    await stage.clock.sleep(2)
                    said = await why(client, receipt.message_id)
                    assert "filter" in said or "acknowledged" in said
                await client.admin.put_group("g", consume_enabled=False)
                assert "group disabled" in await why(client)
                await client.admin.put_group("g", consume_enabled=True)
                stage.cluster.enodes[0].pause()
                assert "enode unavailable" in await why(client)
                stage.cluster.enodes[0].resume()

    play(script, shape=ClusterShape(enodes=1, snodes=1))


@pytest.mark.parametrize(
    ("wanted", "is_wanted"),
    [("blue || red", True), ("blue || green", False), (Sql("n > 5"), True), (Sql("n > 5 AND TAGS = 'blue'"), False)],
)
def test_a_filter_is_named_when_the_message_does_not_pass_it(wanted: str | Sql, is_wanted: bool) -> None:
    """By the filter itself, tags or SQL, independent of its spelling."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            async with client.producer("t") as producer:
                await producer.send(Message(b"first", tag="blue", properties={"n": "9"}))
                settings = ConsumerSettings(from_beginning=True)
                async with client.consumer("g", {"t": wanted}, settings):  # a consumer that acknowledges nothing
                    await stage.clock.sleep(2)
                    receipt = await producer.send(Message(b"second", tag="red", properties={"n": "9"}))
                    said = await why(client, receipt.message_id)
                    assert ("filter" not in said) is is_wanted, said

    play(script)


def test_more_than_one_answer_holds_comes_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """No valid limit makes the list fail; it reports that there is more, and continues behind the last one."""
    monkeypatch.setattr("ortoo.snode.rpc.operators.explanation.deliveries.ANSWER_BYTES_MAX", 400)
    monkeypatch.setattr("ortoo.enode.pops.deliveries.ANSWER_BYTES_MAX", 300)

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            async with client.producer("t") as producer:
                await producer.send_many([b"%d" % number for number in range(40)])
                await producer.flush()
            async with client.pop_consumer("g", "t", "*", PopSettings(messages_max=40)) as consumer:
                for number, one in enumerate(await consumer.pop()):
                    await one.nack(60_000, error=f"reason {number}")
                    if number % 3 == 0:
                        await consumer.pop(1, wait_ms=0)
            offsets, answers, at = list[int](), 0, 0
            queue = (await client.admin.describe_topic("t")).queues[0].queue
            while True:
                found = await client.admin.operations.list_deliveries(
                    "g", "t", queue=queue, from_offset=at, limit=10_000
                )
                answers += 1
                offsets += [one.offset for one in found.messages]
                if not found.more:
                    break
                at = offsets[-1] + 1
            assert offsets == list(range(40))
            assert answers > 3

    play(script)


def test_a_message_among_the_newest_dead_letters_is_parked_and_not_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest dead letters would hide it if the search began with them and stopped at its limit."""
    monkeypatch.setattr("ortoo.snode.rpc.operators.explanation.deliveries.DEAD_LETTERS_MAX", 5)

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            async with client.producer("t") as producer:
                sent = [await producer.send(b"%d" % number) for number in range(9)]
            async with client.pop_consumer("g", "t", "*", PopSettings(messages_max=1)) as consumer:
                for _ in sent:
                    [message] = await consumer.pop()
                    await message.park("broken")
            assert set(await why(client, sent[-1].message_id)) == {"parked"}

    play(script)


def test_a_page_of_dead_letters_costs_one_call_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each dead letter is a batch of its own, and is not queried alone. The page reads no rows beyond a chunk."""
    asked: list[int] = []
    not_replayed = DeadLetters._not_replayed

    async def counted(self: DeadLetters, topic: Any, group: str, queue: Any, offsets: list[int]) -> set[int]:
        asked.append(len(offsets))
        return await not_replayed(self, topic, group, queue, offsets)

    monkeypatch.setattr(DeadLetters, "_not_replayed", counted)

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=1)
            async with client.producer("t") as producer:
                await producer.send_many([b"%d" % number for number in range(400)])
                await producer.flush()
            async with client.pop_consumer("g", "t", "*", PopSettings(messages_max=40)) as consumer:
                for _ in range(10):
                    for one in await consumer.pop():
                        await one.park("broken")
            queue = (await client.admin.describe_topic("%DLQ%g")).queues[0].queue
            for after in (None, (queue, 199), (queue, 299)):
                asked.clear()
                page = client.admin.list_dead_letters("g", dead_letters_max=51, include_replayed=True, after=after)
                assert len([one async for one in page]) == 51
                assert asked == [CHUNK_ROWS]

    play(script)
