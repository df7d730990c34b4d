"""Three replicas lose power during writes: state and log keep all acknowledged data."""

import contextlib
from functools import partial

from ortoo.client import Client, Message, OrtooError, PullSettings, Queue
from ortoo.enode.app import RunningEnode
from ortoo.enode.log.copies.frame_copies import frames_in
from ortoo.enode.log.frame import BadFrame
from ortoo.testing.disks.disk_image import KEEP_UNSYNCED
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from ortoo.verification.simulation.run.agreement import SEGMENT_SUFFIX
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, bodies, leader, sent, topic

FILLING = b"." * 24_000
"""A few of these fill a segment; a checkpoint is due when a segment's length was stored since the last one."""
DELAY_MS = 20_000.0


async def until_done(
    stage: ScriptedCluster, client: Client, message: Message | bytes, dedup_id: str
) -> tuple[int, bool]:
    """Send under an id until it is acknowledged: its offset, and whether it was a duplicate."""
    while True:
        with contextlib.suppress(OrtooError):
            async with client.producer("t") as producer:
                receipt = await producer.send_once(message, dedup_id)
                return receipt.offset, receipt.duplicate
        await stage.clock.sleep(0.1)


async def committed(stage: ScriptedCluster, client: Client, queue: Queue, offset: int | None = None) -> int | None:
    """The committed offset of group `g` in a queue; with `offset`, after committing that."""
    while True:
        with contextlib.suppress(OrtooError):
            async with client.pull_consumer("g", settings=PullSettings(from_beginning=True)) as consumer:
                consumer.assign([queue])
                while offset is not None and queue not in consumer.queues:
                    await stage.clock.sleep(0.05)
                if offset is not None:
                    consumer.seek(queue, offset)
                    await consumer.commit()
                return await consumer.committed(queue)
        await stage.clock.sleep(0.1)


def test_offsets_ids_and_delays_outlive_power_cuts_beside_checkpoints() -> None:
    """Acknowledged data are in no checkpoint before a majority has them, and in the state after every power cut.

    The leader loses power in every round, and in every second one all replicas do, while a segment and its checkpoint
    are being written.
    """

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            places: dict[str, int] = {}
            delayed: list[bytes] = []
            queue = await sent(client, 1, [])
            for number in range(4):
                key = f"once-{number}"
                places[key], _ = await until_done(stage, client, b"once %d" % number, key)
                due_ms = stage.clock.now_ms() + DELAY_MS
                later = b"later %d" % number
                await until_done(stage, client, Message(later, deliver_at_ms=round(due_ms)), f"later-{number}")
                delayed.append(later)
                assert await committed(stage, client, queue, number + 1) == number + 1
                async with client.producer("t") as producer:
                    filling = [await producer.enqueue(FILLING) for _ in range(4)]
                    machines = [await leader(stage)] if number % 2 else stage.cluster.replicas
                    for machine in machines:
                        machine.cut_power()
                    for machine in machines:
                        machine.start()
                    for one in filling:
                        with contextlib.suppress(OrtooError):
                            await one.wait_batch()
                assert await committed(stage, client, queue) == number + 1
                for known, place in places.items():
                    assert await until_done(stage, client, b"twice", known) == (place, True), known
            await stage.clock.sleep(DELAY_MS / 1000 + 5)
            found = await bodies(client, queue)
            assert sorted(one for one in found if one.startswith(b"later")) == delayed

    play(script, shape=THREE)


async def stopped_inside_a_frame(stage: ScriptedCluster, client: Client, follower: ReplicaMachine) -> bool:
    """Let a follower lose power while it writes frames of the leader; whether a partial frame is left.

    Half of the write arrives. With a random part, a run of this test might have no torn frame at all.
    """
    cut = partial(follower.cut_power, KEEP_UNSYNCED, inside_write=True)
    async with client.producer("t") as producer:
        follower.disk.call_at_next("write", stage.world.loop, 1.0, cut)
        filling = [await producer.enqueue(FILLING) for _ in range(3)]
        for one in filling:
            await one.wait_batch()
    while follower.alive:
        await stage.clock.sleep(0.01)
    newest = max(path for path in follower.disk.files() if path.suffix == SEGMENT_SUFFIX)
    content, base = follower.disk.content(newest), int(newest.stem)
    with contextlib.suppress(BadFrame):
        at = 0
        for frame in frames_in(content, base):
            at = frame.header.end_position - base
    return any(content[at:])


def test_a_follower_that_stopped_inside_a_frame_leads_a_whole_log() -> None:
    """A partial frame is removed before its replica leads; offsets are unique, and all later frames are read."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            stored: list[bytes] = []
            queue = await sent(client, 3, stored)
            has_led = False
            for _ in range(3):
                first = await leader(stage)
                torn, other = [one for one in stage.cluster.replicas if one is not first]
                assert await stopped_inside_a_frame(stage, client, torn)
                torn.start()
                await sent(client, 2, stored)
                while await committed_position(torn) < await committed_position(first):
                    await stage.clock.sleep(0.1)
                other.kill()
                first.kill()
                other.start()
                await sent(client, 2, stored)
                has_led |= torn.is_leading
                first.start()
                await sent(client, 2, stored)
                found = [one for one in await bodies(client, queue) if one != FILLING]
                assert found == stored
            assert has_led

    play(script, shape=THREE)


async def committed_position(machine: ReplicaMachine) -> int:
    """The committed position that a replica knows; 0 while it opens its log."""
    running = machine.running
    driver = running.process.driver if isinstance(running, RunningEnode) else None
    return driver.replica.log.committed if driver is not None else 0
