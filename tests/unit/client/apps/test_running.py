"""The state of a program that runs, as a health check sees it."""

import asyncio
from datetime import timedelta

import pytest

from ortoo.client import App, RunningApp, connect
from ortoo.testing.pytest_broker import Broker

pytestmark = pytest.mark.ortoo


async def test_a_program_knows_whether_it_runs(broker: Broker) -> None:
    """It runs until its block is left, also without consumers."""
    for app in (App("g"), App("h")):
        if app.group == "g":
            app.every(timedelta(seconds=1), name="tick")(lambda: None)
        async with connect() as mq, app.running(mq, finish_timeout_s=1.0) as running:
            assert (running.is_running, running.error) == (True, None)
        assert (running.is_running, running.error) == (False, None)
        await running.wait_stopped()


async def test_a_program_whose_consumer_cannot_continue_has_stopped(broker: Broker) -> None:
    """Its error is known before the block is left."""
    await broker.create_topic("one")
    app = App("g")
    seen: list[tuple[bool, str]] = []

    @app.consumer("one")
    async def handle(body: bytes) -> None: ...

    async def until_stopped(running: RunningApp) -> None:
        await running.wait_stopped()
        seen.append((running.is_running, type(running.error).__name__))
        await asyncio.Event().wait()

    async with connect() as mq:
        with pytest.raises(BaseExceptionGroup):
            async with app.running(mq) as running, asyncio.TaskGroup() as watching:
                watching.create_task(until_stopped(running))
                await mq.admin.delete_topic("one", at_once=True)
                await broker.clock.advance("60s")
                await asyncio.Event().wait()
    assert seen == [(False, "NotFound")]
