"""A reset of an exactly-once sink on a replicated enode: no later leader accepts the query again."""

import pytest

from ortoo.client import Conflict, Queue
from ortoo.client.core.wire import wire_queue
from ortoo.common.errors import OrtooError
from ortoo.common.errors.status import error_of
from ortoo.common.groups.sinks import SinkAccount, sink_group
from ortoo.v1 import pull_pb2, sink_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, harmed, leader, sent, topic


@pytest.mark.parametrize("harm", ["kill", "power cut", "isolate"])
def test_a_sink_stays_reset_at_the_next_leader(harm: str) -> None:
    """The reset is a change in the log, so a majority has it before the call returns."""

    async def script(stage: ScriptedCluster) -> None:
        stored: list[bytes] = []
        async with stage.connect("operator") as client:
            await topic(stage, client)
            queue = await sent(client, 1, stored)

            async def commit(query: str, batch_id: int) -> None:
                request = pull_pb2.CommitConsumerOffsetsRequest(
                    group=sink_group("copy"),
                    offsets=[
                        pull_pb2.ConsumerOffset(
                            queue=wire_queue(Queue("t", queue.enode, 0)),
                            offset=SinkAccount.of_query(query, batch_id).offset,
                        )
                    ],
                    sink=sink_pb2.SinkIdentity(sink_id="copy", query_id=query),
                )
                while True:
                    try:
                        answer = await client._connection.call(ConsumerServiceStub, "CommitOffsets", request)
                    except OrtooError as error:
                        if not error.retriable:
                            raise
                    else:
                        for refused in answer.refused:
                            raise error_of(refused.failure)
                        return
                    await stage.clock.sleep(0.1)

            await commit("first", 7)
            member = await leader(stage)
            done = await client.admin.sinks.reset("t", "copy")
            assert (done.sink_id, done.query_id, done.batch_id, done.reset) == ("copy", "first", 7, True)
            undo = await harmed(stage, member, harm)
            await sent(client, 3, stored)
            assert member is not await leader(stage)
            with pytest.raises(Conflict, match="an operator reset the sink after batch 7"):
                await commit("first", 8)
            await commit("second", 0)
            (found,) = (await client.admin.sinks.list()).sinks
            assert (found.query_id, found.batch_id, found.reset) == ("second", 0, False)
            await client.admin.sinks.reset("t", "copy")
            with pytest.raises(Conflict, match="an operator reset the sink after batch 7"):
                await commit("first", 8)
            undo()

    play(script, shape=THREE)
