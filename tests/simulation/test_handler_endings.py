"""Every kind of consumer settles a message however its handler ends: attempts, pauses and order are the group's.

On virtual time. ORTOO_RULE_SEEDS=50 runs it at length.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from ortoo.client import App, Client, Message, PoppedMessage, ReceivedMessage, connect
from ortoo.common.process.randomness import Randomness
from ortoo.testing.pytest_broker import Broker
from tests.integration.pull_group import beside
from tests.simulation.test_one_rule import ATTEMPTS_MAX, DELAYS_S, KINDS, LATE_S, MESSAGES, Handled, _prepared, _until
from tests.unit.client.handling.endings import FAILURES

pytestmark = pytest.mark.ortoo


@dataclass
class Ended(Handled):
    """As `Handled`; failing handlers end in drawn ways."""

    chance: Randomness = field(default_factory=lambda: Randomness(0))
    order: list[bytes] = field(default_factory=list)
    """The messages in the order of their deliveries."""

    async def handle(self, message: ReceivedMessage | PoppedMessage) -> None:
        """A handler of this library."""
        self.order.append(message.body)
        if self.fails(message.body, message.attempt):
            await list(FAILURES.values())[self.chance.below(len(FAILURES))]()


async def _app(mq: Client, group: str, handled: Handled) -> None:
    """A program with delays of its own, which equal those of the group."""
    app = App(group)

    @app.consumer("one", retries=[timedelta(seconds=delay_s) for delay_s in DELAYS_S])
    async def handle(message: PoppedMessage) -> None:
        await handled.handle(message)

    async with app.running(mq):
        await asyncio.Event().wait()


OURS: dict[str, tuple[Callable[[Client, str, Handled], Coroutine[Any, Any, None]], bool]] = {
    **{kind: how for kind, how in KINDS.items() if "rocketmq" not in kind},
    "program": (_app, False),
}


@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("seed", range(int(os.environ.get("ORTOO_RULE_SEEDS", "2"))))
async def test_attempts_pauses_and_order_are_the_groups_whatever_the_end(broker: Broker, kind: str, seed: int) -> None:
    """A failed call in any of the ways is one attempt, after the group's pause; the last one parks the message."""
    consume, in_order = OURS[kind]
    chance = Randomness(seed)
    failures = {b"m%d" % n: chance.below(ATTEMPTS_MAX + 2) for n in range(MESSAGES)}
    await broker.create_topic("one", queues=1)
    async with connect() as mq:
        await _prepared(mq, kind)
        await broker.send("one", *[Message(body, message_group="g" if in_order else None) for body in failures])
        handled = Ended(broker, failures, chance=chance)
        running = beside(consume(mq, kind, handled))
        expected = {body for body, count in failures.items() if count >= ATTEMPTS_MAX}

        async def is_over() -> bool:
            parked = {letter.message.body for letter in await broker.dead_letters(kind)}
            return parked == expected and handled.is_over(parked)

        await _until(broker, is_over)
        running.cancel()
        for body, count in failures.items():
            tries = min(count + 1, ATTEMPTS_MAX)
            assert [attempt for attempt, _ in handled.seen[body]] == list(range(1, tries + 1))
            for pause_s, delay_s in zip(handled.history(body), DELAYS_S, strict=False):
                assert delay_s - 0.01 <= pause_s <= delay_s + LATE_S, (body, handled.seen[body])
        if in_order:
            assert handled.order == [
                body for body, count in failures.items() for _ in range(min(count + 1, ATTEMPTS_MAX))
            ]
