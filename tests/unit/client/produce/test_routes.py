"""The wait for a route when a producer is opened."""

from unittest import mock

import pytest

from ortoo.client import ProducerSettings, Queue, Unavailable
from ortoo.client.produce.routes import Route, wait_for_route
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from tests.unit.client.simulated_store import TOPIC_ID, NoNetwork

QUEUES = (Queue("t", "enode-0", 0),)


async def outcome_of(*answers: Route | Unavailable) -> tuple[Route | str, int]:
    """The route or the error after these answers of the cluster, and the number of answers that were taken."""
    connection = NoNetwork(["localhost:1"], clock=SystemClock(), randomness=Randomness(1))
    connection.backoff = Backoff(first_s=0.0)
    query_placement = mock.AsyncMock(side_effect=answers)
    with mock.patch("ortoo.client.produce.routes.query_placement", query_placement):
        try:
            found: Route | str = await wait_for_route(connection, "t", ProducerSettings())
        except Unavailable as error:
            found = str(error)
    return found, query_placement.await_count


@pytest.mark.parametrize("is_down_first", [False, True])
async def test_only_enodes_are_waited_for(is_down_first: bool) -> None:
    """A cluster that does not answer is reported at once. The call itself was retried, and the address may be wrong."""
    down, up = Route(TOPIC_ID, (), QUEUES), Route(TOPIC_ID, QUEUES, QUEUES)
    assert await outcome_of(down, down, up) == (up, 3)
    first = (down,) if is_down_first else ()
    assert await outcome_of(*first, Unavailable("no answer from localhost:1"), up) == (
        "no answer from localhost:1",
        len(first) + 1,
    )
