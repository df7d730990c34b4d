"""Cancelled calls leave nothing behind; `make cancellations` does it with thousands."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ortoo.client import PopSettings
from ortoo.enode.pops.leasing import PopLeasing
from ortoo.snode.rpc.pop import PopConsumerHandlers
from tests.simulation.cancellations import called_off
from tests.simulation.scripted_cluster import ScriptedCluster, play


def test_of_calls_that_are_called_off_at_any_await_nothing_is_left() -> None:
    """No lost message, no lease without an owner, no stale group member, no open call, no task."""
    called_off(seed=1, count=60)


def test_a_pop_that_keeps_what_it_got_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that finds nothing proves nothing."""
    monkeypatch.setattr("ortoo.enode.pops.attempts.PopAttempts.cancel", lambda *_: [])
    with pytest.raises(AssertionError, match=r"never came|still leased"):
        called_off(seed=1, count=60)


@pytest.mark.parametrize("older", ["nobody", "enode", "snode", "both"])
@pytest.mark.parametrize("at", ["Lease", "Pop"])
def test_what_a_pop_brings_as_it_is_called_off_goes_back_at_once(
    older: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever its answer is under way, also through processes of a version that does not support cancellation."""
    pop, front = PopLeasing.pop, PopConsumerHandlers.Pop

    async def older_pop(self: Any, wish: Any) -> Any:
        return await pop(self, replace(wish, cancel=False, request_id=""))

    async def older_front(self: Any, request: Any, context: Any) -> Any:
        request.cancel = False
        return await front(self, request, context)

    if older in ("enode", "both"):
        monkeypatch.setattr(PopLeasing, "pop", older_pop)
    if older in ("snode", "both"):
        monkeypatch.setattr(PopConsumerHandlers, "Pop", older_front)

    async def script(stage: ScriptedCluster) -> None:
        settings = PopSettings(invisible_ms=3_600_000, renew_max_ms=0)
        async with (
            stage.connect("app") as client,
            client.pop_consumer("g", "t", "*", settings) as consumer,
            client.pop_consumer("g", "t", "*", settings) as other,
        ):
            await client.admin.ensure_topic("t", queue_count=1)
            popping = asyncio.ensure_future(consumer.pop())  # noqa: TID251  # called off below
            await stage.clock.sleep(1)

            def watch(source: str, _: str, packet: Any) -> bool:
                if packet.method.endswith(f"/{at}") and source.startswith(("enode", "snode")) and packet.message:
                    stage.world.network.watchers.clear()
                    stage.later(0, popping.cancel)
                return False

            stage.world.network.watchers[watch] = None
            async with client.producer("t") as producer:
                await producer.send(b"one")
            await asyncio.wait({popping})
            assert popping.cancelled()
            [again] = await other.pop(wait_ms=10_000)
            assert (again.body, again.attempt) == (b"one", 1)
            await again.ack()

    play(script)
