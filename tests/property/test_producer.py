"""A producer against a store that loses answers, breaks streams and refuses temporarily."""

import asyncio
import contextlib

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ortoo.client import Forbidden, Message, Unavailable
from tests.unit.client.simulated_store import Fault, SimulatedStore, producer_to

FAULTS = st.lists(st.sampled_from(Fault), max_size=40)
ROUNDS = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=12), min_size=1, max_size=8)

REFUSED_BESIDE_ANOTHER_ID = [
    getattr(Fault, name) for name in ["REFUSED", "NONE", "LOST", "NONE", "REFUSED", "NONE", "NONE", "REFUSED"]
]
"""The first of a group's messages is refused while the second one is under way with a new id."""

REFUSED_BEHIND_ONE_IN_DOUBT = [
    getattr(Fault, name) for name in ["ANSWER_LOST", "REFUSED", "NONE", "REFUSED", "FORBIDDEN"]
]
"""The second batch of a queue is refused permanently while the first, which is stored, is being retried."""


@settings(max_examples=150, deadline=None)
@given(FAULTS, ROUNDS)
@example(REFUSED_BESIDE_ANOTHER_ID, [[3, 1], [3, 0], [0]])
@example(REFUSED_BEHIND_ONE_IN_DOUBT, [[1, 3], [1]])
def test_whatever_breaks_everything_is_stored_once_and_receipts_are_true(
    faults: list[Fault], rounds: list[list[int]]
) -> None:
    """G4: each message is stored exactly once, where its receipt says, and message groups keep their order.

    G11: a permanently refused message is stored nowhere, and a possibly stored one is reported as unknown.
    """
    store = SimulatedStore(faults)
    told: dict[bytes, tuple[object, int]] = {}
    refused: set[bytes] = set()
    unknown: set[bytes] = set()
    order: dict[int, list[bytes]] = {}

    async def produce() -> None:
        number = 0
        async with asyncio.timeout(60), producer_to(store) as producer:
            sendings = []
            for groups in rounds:
                for group in groups:
                    body = b"%d" % number
                    number += 1
                    order.setdefault(group, []).append(body)
                    # Group 0 stands for messages without one.
                    message = Message(body, message_group=f"group {group}" if group else None)
                    sendings.append((body, producer.enqueue_nowait(message)))
                await sendings[-1][1].wait_batch()
            with contextlib.suppress(Forbidden, Unavailable):
                await producer.flush()
            for body, sending in sendings:
                try:
                    receipt = await sending
                    told[body] = (receipt.queue, receipt.offset)
                except Forbidden:
                    refused.add(body)
                except Unavailable:
                    unknown.add(body)

    asyncio.run(produce())
    stored = [body for bodies in store.queues.values() for body in bodies]
    assert sorted(body for body in stored if body not in unknown) == sorted(told)
    assert len(set(stored)) == len(stored)
    assert len(refused) + len(unknown) <= 12 * faults.count(Fault.FORBIDDEN)
    for body, (queue, offset) in told.items():
        assert store.queues[queue][offset] == body  # type: ignore[index]
    for group, bodies in order.items():
        if group:
            queues = {told[body][0] for body in bodies if body in told}
            assert len(queues) <= 1
            places = [told[body][1] for body in bodies if body in told]
            assert places == sorted(places), f"{bodies} lie at {places} of {queues}"
