"""A producer against a store that loses answers, breaks streams and refuses for a while."""

import asyncio

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ortoo.client import Message
from tests.unit.client.simulated_store import Fault, SimulatedStore, producer_to

FAULTS = st.lists(st.sampled_from(Fault), max_size=40)
ROUNDS = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=12), min_size=1, max_size=8)

REFUSED_BESIDE_ANOTHER_ID = [
    getattr(Fault, name) for name in ["REFUSED", "NONE", "LOST", "NONE", "REFUSED", "NONE", "NONE", "REFUSED"]
]
"""The first of a group's messages is refused while the second one travels under a new id."""


@settings(max_examples=150, deadline=None)
@given(FAULTS, ROUNDS)
@example(REFUSED_BESIDE_ANOTHER_ID, [[3, 1], [3, 0], [0]])
def test_whatever_breaks_everything_is_stored_once_and_receipts_are_true(
    faults: list[Fault], rounds: list[list[int]]
) -> None:
    """G4: each message is stored exactly once, where its receipt says, and those of a message group in their order."""
    store = SimulatedStore(faults)
    told: dict[bytes, tuple[object, int]] = {}
    order: dict[int, list[bytes]] = {}

    async def produce() -> None:
        number = 0
        async with asyncio.timeout(30), producer_to(store) as producer:
            sendings = []
            for groups in rounds:
                for group in groups:
                    body = b"%d" % number
                    number += 1
                    order.setdefault(group, []).append(body)
                    # Group 0 stands for messages without one.
                    message = Message(body, message_group=f"group {group}" if group else None)
                    sendings.append((body, producer.send_nowait(message)))
                await sendings[-1][1].settled()
            await producer.flush()
            for body, sending in sendings:
                receipt = await sending
                told[body] = (receipt.queue, receipt.offset)

    asyncio.run(produce())
    stored = [body for bodies in store.queues.values() for body in bodies]
    assert sorted(stored) == sorted(told)
    for body, (queue, offset) in told.items():
        assert store.queues[queue][offset] == body  # type: ignore[index]
    for group, bodies in order.items():
        if group:
            (queue,) = {told[body][0] for body in bodies}
            places = [told[body][1] for body in bodies]
            assert places == sorted(places), f"{bodies} lie at {places} of {queue}"
