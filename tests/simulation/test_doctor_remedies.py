"""The doctor's remedies, followed literally after each fault: commands as they are written, and actions on machines.

Afterwards the doctor has no finding. `FAULTS` has the faults, and a test compares both tables. Faults that need real
sockets, files or processes, with their remedies, are tested elsewhere:

* another Redis prefix, a wrong password, a slow Redis: tests/e2e/test_membership_findings.py
* expired and other wrong certificates, of a role or a client: tests/integration/test_handshakes.py
* a wrong name server or cluster token of an enode, a user without permission: tests/integration/test_advice.py
* a read-only PostgreSQL: tests/integration/test_namesrv_database_faults.py
* name servers over two databases: tests/e2e/test_two_directories.py
* an enode that stays down over a restart of the cluster: tests/e2e/test_expected_enodes.py
* messages that wait, of each kind: tests/e2e/test_message_explained.py
"""

import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
import typer

from ortoo.cli.app import COMMANDS, FAMILIES, app
from ortoo.client import PopSettings
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.testing.simulation.cluster.roles import SEGMENT_BYTES, RoleMachine
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_doctor_faults import FAULTS, RETENTION_MS, SLOW, Patient, patient, shaken

WITHIN_S = 5.0
HEALTHY_WITHIN_S = 180.0
"""After the remedy: leases, refusals and statistics of the last minutes have to expire."""

Remedy = Callable[[Patient, str], Awaitable[None]]
"""Follows a remedy, whose text is given."""


async def typed(it: Patient, line: str) -> Any:
    """Run a command of `ortoo` as it is written; returns its JSON value."""
    _, *words = shlex.split(line)
    found: Any = typer.main.get_command(app)
    path: list[str] = []
    while hasattr(found, "commands"):
        path.append(words.pop(0))
        found = found.commands[path[-1]]
    arguments = found.make_context(path[-1], words).params
    del arguments["address"], arguments["as_json"]
    work = COMMANDS[path[0]] if len(path) == 1 else FAMILIES[path[0]][1][path[1]]
    answer = work(it.client, **arguments)
    return [one async for one in answer] if hasattr(answer, "__aiter__") else (await answer).value


def command(line: str) -> Remedy:
    """A remedy that has this command."""

    async def follow(it: Patient, text: str) -> None:
        assert line in text
        await typed(it, line)

    return follow


async def consume_all(it: Patient) -> None:
    """A consumer of the group that finishes everything."""
    async with it.client.pop_consumer("g", "t", "*", PopSettings()) as consumer:
        idle = 0
        while idle < 3:
            popped = await consumer.pop(wait_ms=2_000)
            for one in popped:
                await one.ack()
            idle = 0 if popped else idle + 1


async def push_all(it: Patient) -> None:
    """A push consumer of the group whose handler works again, also for the retries."""

    async def succeed(received: object) -> None:
        """Return, so that the message is acknowledged."""

    await it.push(succeed, 120)


def actions(phrase: str, act: Callable[[Patient], Awaitable[None] | None]) -> Remedy:
    """A remedy with this phrase, and the action that it names."""

    async def follow(it: Patient, text: str) -> None:
        assert phrase in text
        done = act(it)
        if done is not None:
            await done

    return follow


async def start_all(it: Patient) -> None:
    """Start every machine that is down."""
    for machine in (*it.stage.cluster.name_servers, *it.stage.cluster.enodes):
        machine.start()
        await machine.ready.wait()


async def restart(machine: RoleMachine) -> None:
    """Kill a frozen process and start it again."""
    machine.kill()
    machine.start()
    await machine.ready.wait()


async def restart_enodes(it: Patient, **chosen: Any) -> None:
    """Restart every enode, with other settings."""
    for enode in it.stage.cluster.enodes:
        enode.chosen = chosen
        await enode.stop()
        enode.start()
        await enode.ready.wait()


def enlarge_volume(it: Patient) -> None:
    """Give the disk space."""
    it.stage.cluster.enodes[0].disk.current.platter.capacity_bytes = 1 << 30


def correct_disk(it: Patient) -> None:
    """The disk answers as usual again."""
    latency = it.stage.cluster.enodes[0].disk.latency
    latency.least_s, latency.usual_s, latency.seldom_s = 0.0001, 0.003, 0.01


def repair_network(it: Patient) -> None:
    """End the fault of the network."""
    it.undo()


def start_database(it: Patient) -> None:
    """Start PostgreSQL."""
    it.stage.world.database.away = False


def start_redis(it: Patient) -> None:
    """Start Redis."""
    it.stage.world.redis.resume_answering()


async def wait_a_minute(it: Patient) -> None:
    """Wait, as the finding says."""
    await it.stage.clock.sleep(60)


async def end_transactions(it: Patient, text: str) -> None:
    """The commands of the finding: list the transactions, and end each."""
    assert "ortoo tx list --parked, then ortoo tx commit ID" in text
    listed = await typed(it, "ortoo tx list --parked")
    assert listed
    for one in listed:
        await typed(it, f"ortoo tx commit {one.transaction_id}")


async def replay(it: Patient, text: str) -> None:
    """The commands of the finding, with a consumer that works."""
    assert "ortoo dlq list g shows the reasons; ortoo dlq replay g sends them again" in text
    assert await typed(it, "ortoo dlq list g")
    await typed(it, "ortoo dlq replay g")
    await consume_all(it)


async def correct_name(it: Patient, text: str) -> None:
    """Use the suggested group."""
    assert "did you mean billing?" in text
    it.group = "billing"


async def nothing_more(it: Patient) -> None:
    """The refused process is stopped already."""


async def raise_retention(it: Patient, text: str) -> None:
    """The setting of the finding, then a consumer; at last the value of the settings file again."""
    named = "ortoo settings set enode store.retention_age_ms="
    assert f"{named}LARGER" in text
    assert "run more consumers" in text
    await typed(it, f"{named}{30 * RETENTION_MS}")
    await consume_all(it)
    await typed(it, "ortoo settings set enode --reset store.retention_age_ms")


async def larger_index(it: Patient) -> None:
    """The setting of the finding."""
    small = {"segment_bytes": SEGMENT_BYTES, "headroom_bytes": 0, "threads": False}
    await restart_enodes(it, store=it.stage.cluster.enodes[0].chosen["store"].__class__(**small))


REMEDIES: Mapping[str, Remedy] = {
    "disk full": actions("enlarge the volume", enlarge_volume),
    "fdatasync failed": actions("restart the process", restart_enodes),
    "disk hangs": actions("look at the disk", correct_disk),
    "slow disk": actions("check which other processes use the disk", correct_disk),
    "clock set back": actions("Otherwise synchronise it", lambda it: it.stage.cluster.enodes[0].clock.jump(60_000)),
    "clock corrected": actions("If it is right now, wait 60 s", wait_a_minute),
    "clock ahead": actions("synchronise the clocks", lambda it: it.stage.cluster.enodes[1].clock.jump(-60_000)),
    "one name server away": actions("start it", start_all),
    "no name server": actions("start it", start_all),
    "database unavailable": actions("check PostgreSQL", start_database),
    "second enode of a name": actions("stop one of the two", nothing_more),
    "snode that shares nothing": actions("stop one of the two", nothing_more),
    "Redis silent": actions("start Redis", start_redis),
    "enode unavailable": actions("start it again with its volume", start_all),
    "no enode of the topic": actions("start one of these enodes", start_all),
    "enode frozen": actions("restart it if it is frozen", lambda it: restart(it.stage.cluster.enodes[1])),
    "snode frozen": actions("restart it if it is frozen", lambda it: restart(it.stage.cluster.snodes[1])),
    "dead letters": replay,
    "poison handler": actions("look at the consumers' logs", consume_all),
    "stalled transaction": end_transactions,
    "deleted topic": command("ortoo topic undelete old"),
    "misspelt topic": command("ortoo topic create order"),
    "read-only topic": command("ortoo topic update t --permission read_write"),
    "misspelt group": correct_name,
    "group disabled": command("ortoo group update g --consume"),
    "no consumers": actions("start a consumer of this group", consume_all),
    "directory lost": command("ortoo topic adopt younger"),
    "disk 95 % full": actions("enlarge the volume", enlarge_volume),
    "failing push handler": actions("look at the consumers' logs", push_all),
    "pop group without consumer": actions("start a consumer of this group", consume_all),
    "group slower than retention": raise_retention,
    "snode cut off from an enode": actions("network", repair_network),
    "narrow index": actions("raise store.index_bytes_max", larger_index),
}
LASTING = {"damaged log": "a lost part of the only copy is reported until retention deletes its segment"}
"""Faults that no command undoes, and why."""


def test_every_fault_has_a_remedy() -> None:
    """A new fault needs a row here."""
    assert REMEDIES.keys() | LASTING.keys() | SLOW == FAULTS.keys()


@pytest.mark.parametrize("fault", REMEDIES)
def test_the_remedy_of_a_fault_ends_it(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault is reported within five seconds. After its remedy the doctor has no finding."""
    happens, name, _ = FAULTS[fault]

    async def script(stage: ScriptedCluster) -> None:
        async with patient(stage, monkeypatch) as it:
            await happens(it)
            begun_s = stage.clock.monotonic_s()
            while name not in (named := {one.name: one for one in await it.findings()}):
                assert stage.clock.monotonic_s() - begun_s < WITHIN_S, named
                await stage.clock.sleep(0.2)
            await REMEDIES[fault](it, named[name].remedy)
            begun_s = stage.clock.monotonic_s()
            while found := [str(one) for one in await it.findings()]:
                assert stage.clock.monotonic_s() - begun_s < HEALTHY_WITHIN_S, found
                await stage.clock.sleep(1)

    shape = ClusterShape(name_servers=2, enodes=2, snodes=2)
    play(script, shape=shape, prepare=lambda stage: shaken(stage, fault))
