"""Groups that pop cross a hole of any length in a queue in one step."""

import pytest

from ortoo.enode.changes.kinds import OffsetsSkipped
from tests.contract.one_store import TOPIC
from tests.contract.pop_store import GROUP, PopStore, play, texts


@pytest.mark.parametrize("length", [1, 100_000, (1 << 32) - 1, 1 << 32, 5 << 32])
def test_a_hole_is_crossed_in_one_step(length: int) -> None:
    """It costs the log one change, not one per offset, also if no range can count it, and survives a restart."""

    async def scenario(it: PopStore) -> None:
        await it.send("before")
        await it.store.change(OffsetsSkipped(TOPIC, 0, 1, 1 + length))
        await it.send("behind")
        kept = await it.pop(1)
        assert texts(kept) == ["before"]
        position = it.store.engine.appender.appended_position
        popped = await it.pop()
        assert texts(popped) == ["behind"]
        assert popped.batches[0].offsets == (1 + length,)
        assert it.leasing._reading.lost_messages == length
        await it.store.engine.appender.flush()
        assert it.store.engine.appender.appended_position - position < 2_000
        await it.store.engine.housekeeping.checkpoint()
        await it.restart()
        await it.ack(popped)
        await it.ack(kept)
        assert it.store.offsets.of(TOPIC, GROUP, [0]) == {0: 2 + length}

    play(scenario)


@pytest.mark.parametrize("length", [1, 100_000])
def test_a_hole_is_crossed_in_order_while_a_message_before_it_is_worked_on(length: int) -> None:
    """A former enode searched for the hole's message groups without end, and logged each change, in one loop turn."""

    async def scenario(it: PopStore) -> None:
        await it.send("before", group="a")
        await it.store.change(OffsetsSkipped(TOPIC, 0, 1, 1 + length))
        await it.send("a2", group="a")
        await it.send("b1", group="b")
        kept = await it.pop(1, in_order=True)
        popped = await it.pop(in_order=True)
        assert (texts(kept), texts(popped)) == (["before"], ["b1"])
        assert it.leasing._reading.lost_messages == length
        await it.ack(kept)
        assert texts(await it.pop(in_order=True)) == ["a2"]

    play(scenario)
