"""Each file of one of three replicas is lost, emptied, older or another store's; the replica is started three times.

The rows are those of tests/store_files.py. The other replicas serve meanwhile.
"""

import contextlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from ortoo.client import Client, OrtooError
from ortoo.common.errors import DataLoss
from ortoo.enode.app import RunningEnode
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from ortoo.verification.simulation.run.agreement import SEGMENT_SUFFIX, differences
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_equal_states import agreed
from tests.simulation.test_take_over import THREE, bodies, sent, topic
from tests.store_files import FILES, FULL_SEGMENT, Harm, Start, StoreFile, names_of, of_another_log, undescribed

STARTS = 3
START_S = 1.0
"""Virtual seconds within which a start is refused, or the replica is ready and has its log open."""
FILLING = b"." * 8_000
SEGMENTS = 3
OF_ANOTHER = 77
"""The seed of a run with another set."""
MADE = {"`cut-<epoch>-<position>`": "cut-1-640", "`<number>.spare`": "000009.spare", "`*.tmp`": "begin.tmp"}
"""Files that are not always there. They are created, with some content, before they are harmed."""
Files = Mapping[str, bytes]
ROWS = [row for row in FILES if set(row.replicas.values()) != {Start.ABSENT}]


def files_of(machine: ReplicaMachine) -> Files:
    """All files of a replica, by name."""
    return {path.name: machine.disk.content(path) for path in machine.disk.files()}


async def filled(client: Client, machine: ReplicaMachine, stored: list[bytes]) -> None:
    """Store messages until a replica's log has a few segments more."""

    def segments() -> int:
        return sum(name.endswith(".seg") for name in files_of(machine))

    wanted = segments() + SEGMENTS
    async with client.producer("t") as producer:
        while segments() < wanted:
            stored.append(b"%d" % len(stored) + FILLING)
            await producer.send(stored[-1])


async def begun(stage: ScriptedCluster, client: Client, stored: list[bytes]) -> ReplicaMachine:
    """The replica that is harmed; all replicas have its log of several segments."""
    await topic(stage, client)
    await sent(client, 5, stored)
    await filled(client, stage.cluster.replicas[0], stored)
    await agreed(stage)
    return stage.cluster.replicas[0]


@cache
def another_store() -> Files:
    """The files of a replica of another set."""
    found: dict[str, bytes] = {}

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            one = await begun(stage, client, [])
            await one.stop()
            found.update(files_of(one))

    play(script, shape=THREE, seed=OF_ANOTHER)
    return found


async def stopped(stage: ScriptedCluster, machine: ReplicaMachine, row: StoreFile) -> None:
    """Stop a replica that has the whole log. If the marker of a clean stop is to be harmed, repeat until it exists."""
    while True:
        # It fetches missing frames of a full segment from the others when they are read, and writes them then.
        while differences(stage.cluster.replicas, flipped=machine.name if row.name == FULL_SEGMENT else ""):
            await stage.clock.sleep(0.1)
        await machine.stop()
        if row.name != "`clean`" or "clean" in files_of(machine):
            return
        machine.start()


def harm_file(machine: ReplicaMachine, row: StoreFile, harm: Harm, older: Files) -> tuple[str, bytes]:
    """Harm the newest file of a row; its name and its previous content."""
    folder, now = Path("/") / machine.name, files_of(machine)
    names = names_of(row, list(now))
    if not names:
        names = [MADE[row.name]]
        machine.disk.put(folder / names[0], b"some")
    name, was = names[-1], now.get(names[-1], b"some")
    if harm is Harm.DELETED:
        machine.disk.remove(folder / name)
    elif harm is Harm.EMPTIED:
        machine.disk.put(folder / name, b"")
    elif harm is Harm.OLDER:
        machine.disk.put(folder / name, older.get(name, was))
    elif name.endswith(SEGMENT_SUFFIX):
        machine.disk.put(folder / name, of_another_log(was, int(name.removesuffix(SEGMENT_SUFFIX))))
    else:
        others = names_of(row, list(another_store()))
        machine.disk.put(folder / name, another_store()[others[-1]] if others else b"other")
    return name, was


def set_of(machine: ReplicaMachine) -> str:
    """The set id of a running replica."""
    assert isinstance(machine.running, RunningEnode)
    return machine.running.process.membership.stored.set_id


async def opened(stage: ScriptedCluster, machine: ReplicaMachine) -> bool:
    """Start a replica; whether it opens its log. A refused process ends, and is not restarted."""
    machine.start()
    await stage.clock.sleep(START_S)
    running = machine.running if machine.alive and machine.ready.is_set() else None
    return isinstance(running, RunningEnode) and running.process.driver is not None


async def settled(stage: ScriptedCluster, client: Client, machine: ReplicaMachine, stored: list[bytes]) -> None:
    """Wait until a replica has the state of the others, and let it lead. It requests missing frames from them."""
    while differences(stage.cluster.replicas, flipped=machine.name):
        await stage.clock.sleep(0.1)
    while not machine.is_leading:
        with contextlib.suppress(OrtooError):
            await client.admin.replicas.transfer_leadership(machine.enode, machine.number)
        await stage.clock.sleep(0.1)
    await sent(client, 1, stored)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_lost_file_of_a_replica_costs_nothing(row: StoreFile) -> None:
    """Three starts of the replica behave as in the table. All replicas agree in the end, and have all sent messages."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            stored: list[bytes] = []
            one = await begun(stage, client, stored)
            one.may_crash_with = lambda error: isinstance(error, DataLoss)  # type: ignore[method-assign]
            set_id = set_of(one)
            await one.stop()
            older = files_of(one)
            one.start()
            queue = await sent(client, 5, stored)
            await filled(client, one, stored)
            for harm in Harm:
                await stopped(stage, one, row)
                assert undescribed(list(files_of(one))) == []
                name, was = harm_file(one, row, harm, older)
                harmed = files_of(one)
                for _ in range(STARTS):
                    is_open = await opened(stage, one)
                    assert is_open is (row.replicas[harm] is Start.RIGHT), (harm, name)
                    await sent(client, 2, stored)
                    one.kill()
                    left = files_of(one)
                    is_untouched = all(harmed[name] == content for name, content in left.items() if name in harmed)
                    assert is_open or is_untouched, (harm, name)
                if row.replicas[harm] is Start.REFUSED:
                    one.disk.put(Path("/") / one.name / name, was)
                one.start()
                await settled(stage, client, one, stored)
                assert {set_of(member) for member in stage.cluster.replicas} == {set_id}
                assert await bodies(client, queue) == stored, (harm, name)

    another_store()  # a run of its own, before this one
    play(script, shape=THREE)
