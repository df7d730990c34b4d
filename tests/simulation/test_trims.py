"""A purge of a replicated topic: no later leader shows the purged messages again."""

import pytest

from ortoo.client import OutOfRange
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, harmed, leader, sent, topic


@pytest.mark.parametrize("harm", ["kill", "power cut", "isolate"])
def test_purged_messages_are_unreadable_at_the_next_leader(harm: str) -> None:
    """The purge is a change in the log, so a majority has it before the call returns."""

    async def script(stage: ScriptedCluster) -> None:
        stored: list[bytes] = []
        async with stage.connect("operator") as client:
            await topic(stage, client)
            queue = await sent(client, 5, stored)
            member = await leader(stage)
            [trimmed] = await client.admin.purge_topic("t")
            assert (trimmed.previous_begin_offset, trimmed.begin_offset) == (0, 5)
            undo = await harmed(stage, member, harm)
            await sent(client, 3, stored)
            assert member is not await leader(stage)
            with pytest.raises(OutOfRange):
                async for _ in client.fetch(queue, 4):
                    pass
            found = [body async for batch in client.fetch(queue, 5) for body in batch.bodies()]
            assert found == stored[5:]
            undo()

    play(script, shape=THREE)
