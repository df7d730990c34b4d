"""Faults of consumer groups, for the alert tests: failing handlers, and retention that does not wait for a group."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ortoo.client import ConsumerSettings
from tests.deploy.alert_scene import Scene, running


@asynccontextmanager
async def failing_handler(scene: Scene) -> AsyncIterator[None]:
    """The handler of a push consumer fails at every message."""
    await scene.new_topic("failed")
    await scene.mq.admin.groups.update("failing-pushes", retry="list:200ms,200ms,200ms,1h")
    await scene.send("failed", 3)

    async def fail(message: object) -> None:
        raise RuntimeError("no such customer")

    settings = ConsumerSettings(from_beginning=True)
    async with (
        scene.mq.consumer("failing-pushes", "failed", settings) as consumer,
        running(scene.background, consumer.run(fail)),
    ):
        yield
    # Its retries wait for an hour; only the deletion of the topic ends them earlier.
    await scene.mq.admin.delete_topic("%RETRY%failing-pushes", at_once=True)


@asynccontextmanager
async def short_retention(scene: Scene) -> AsyncIterator[None]:
    """Retention is short, and the consumers of a group have ended."""
    await scene.catch_up("forgetful", "old")
    await scene.new_topic("short")
    await scene.send("short", 1)
    await scene.catch_up("too-late", "short")
    await scene.send("short", 3)
    await _set_retention(scene, 20_000)
    yield
    await _set_retention(scene, 3_600_000)
    await scene.catch_up("too-late", "short")


@asynccontextmanager
async def lost_messages(scene: Scene) -> AsyncIterator[None]:
    """Retention deletes messages that a group has not read."""
    await scene.new_topic("lossy")
    await scene.send("lossy", 1)
    await scene.catch_up("loser", "lossy")
    await scene.send("lossy", 3)
    await _set_retention(scene, 1_000)
    yield
    await _set_retention(scene, 3_600_000)
    await scene.catch_up("loser", "lossy")


async def _set_retention(scene: Scene, age_ms: int) -> None:
    """Change the retention of the faulty enode, which is checked every ten seconds."""
    changed = {"store.retention_age_ms": str(age_ms)}
    await scene.mq.admin.operations.update_settings("enode", changed, process=scene.enode.folder.name)
