"""The comparison with RocketMQ and Kafka: its table, its picture, and its message where it cannot run."""

import asyncio
import dataclasses
import itertools
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.peers import __main__ as command
from bench.peers import jars
from bench.peers.load import LoadFailed, _running
from bench.peers.picture import draw
from bench.peers.rounds import Plan, System, compare, is_steady, warm_up
from bench.peers.servers import state_of
from bench.peers.table import Compared, PeerRow, compared, load, rows, table

WAYS = ("send 1", "send 16", "send 64", "simple", "push", "python 1", "python 16")


def steady(ms: float, **cpu_us: float) -> dict[str, Any]:
    """Figures at a steady rate."""
    return {"p50_ms": ms, "p99_ms": 2 * ms, "cpu_us": cpu_us}


def single(per_s: float, **cpu_us: float) -> dict[str, Any]:
    """Figures of a system that is asked for one message at a time."""
    ways = {way: {"per_s": per_s, "p50_ms": 1.0} for way in WAYS}
    memory = {"without_files_mib": per_s}
    return {
        **ways, "steady": steady(10.0, **cpu_us), "idle": memory, "loaded": memory, "idle_processor_share": 0.02,
        "first_send_s": 2.0,
    }  # fmt: skip


def result(**systems: list[dict[str, Any]]) -> dict[str, Any]:
    """A result whose systems have these figures in their rounds."""

    def whole(rounds: list[dict[str, Any]]) -> dict[str, Any]:
        busy = {"load_average": {"before": 1.5, "after": 2.5}, "others_share": 0.04}
        return {"start": {}, "warm_up": {"send 1": {"steady": True}}, "rounds": [{**busy, **one} for one in rounds]}

    return {
        "setting": {
            "cores": 2, "memory_gib": 23.5, "kernel": "6.18.44-x", "python": "3.11.7", "python_build": "PGO, LTO",
            "transport": "h2",
        },
        "method": "All were warm.",
        "versions": dict.fromkeys(("rocketmq", "kafka", "client", "java", "confluent-kafka"), "1.2.3"),
        "rounds": len(next(iter(systems.values()))),
        "seconds": 5.0,
        "systems": {name.replace("_", " "): whole(rounds) for name, rounds in systems.items()},
    }  # fmt: skip


def test_a_ratio_above_one_means_ahead() -> None:
    """Twice the rate and half the time are both 2.00."""
    assert Compared((PeerRow("s", "sends", 400.0, 200.0, "/s"),)).cells() == "| sends | 400/s | 200/s | 2.00 |"
    assert Compared((PeerRow("s", "p50", 2.5, 5.0, " ms", True),)).cells() == "| p50 | 2.50 ms | 5.00 ms | 2.00 |"


def test_figures_are_medians_with_their_range() -> None:
    """The ratio is that of each round: a round in which everything was slow changes none."""
    some = tuple(PeerRow("s", "sends", ours, theirs, "/s") for ours, theirs in ((400, 200), (100, 50), (300, 100)))
    assert Compared(some).cells() == (
        "| sends | 300/s (100/s to 400/s) | 100/s (50.0/s to 200/s) | 2.00 (2.00 to 3.00) |"
    )


def test_the_table_has_what_both_sides_measured() -> None:
    """A section for each pair; a system without its counterpart is left out, and the load is told."""
    ours, theirs = single(500.0, enode=1000.0, snode=500.0), single(1000.0, broker=4000.0, proxy=2000.0)
    both = result(ortoo=[ours], rocketmq=[theirs])
    text = table(both)
    assert "Python 3.11.7 (PGO, LTO)" in text
    assert "All were warm. Rounds: 1." in text
    assert "Of 2 loads, 2 were steady" in text
    assert "Load average, of which the load itself is a part: 1.5 to 2.5. " in text
    assert "took 4 to 4 % of the machine meanwhile. A ratio" in text
    both["systems"]["rocketmq"]["rounds"][0]["others_share"] = 0.4
    assert "took 4 to 40 % of the machine meanwhile, so that ratios tell little. A ratio" in table(both)
    assert "| Java: send, 64 in flight | 500/s | 1,000/s | 0.50 |" in text
    assert "| servers' processor time a message at 200/s | 1.50 ms | 6.00 ms | 4.00 |" in text
    assert "Kafka" not in text
    assert compared(result(ortoo=[single(500.0, enode=1.0)])) == []


def test_rows_come_first_in_which_the_other_system_is_ahead() -> None:
    """And the text begins with their number."""
    both = result(ortoo=[single(500.0, enode=1.0)], rocketmq=[single(1000.0, broker=4.0)])
    ratios = [one.ratio for one in compared(both)]
    behind = sum(ratio < 1 for ratio in ratios)
    assert 0 < behind < len(ratios)
    assert all(ratio < 1 for ratio in ratios[:behind])
    assert table(both).startswith(
        f"Ortoo is ahead in {len(ratios) - behind} of {len(ratios)} rows, the other system in {behind};"
    )


def test_members_are_compared_with_one_member() -> None:
    """The leader, and the mean of its followers, beside the cost of an enode without replicas."""
    many = {"per_s": 300.0, "cpu_us": {"snode": 1.0, "leader": 1.5, "follower-1": 0.2, "follower-2": 0.4}}
    alone = {"per_s": 600.0, "cpu_us": {"snode": 1.0, "enode": 1.0}}
    three = {"bench many": many, "bench steady": steady(30.0)}
    found = rows({"ortoo of three": three, "ortoo in bulk": {"bench many": alone, "bench steady": steady(10.0)}}, {})
    assert [(row.ours, round(row.ratio, 2)) for row in found] == [
        (300.0, 0.5),
        (1.5, 0.67),
        (pytest.approx(0.3), 3.33),
        (60.0, 0.33),
    ]


PLAN = Plan(rounds=4, seconds=1, warm_up_min_s=30, warm_up_max_s=120, idle_s=0, stored_messages=1)


@pytest.mark.parametrize(
    ("rates", "steady"),
    [([100, 100], False), ([50, 100, 98, 96], True), ([100, 94, 100], False), ([0, 0, 0], False)],
)
def test_three_windows_in_a_row_are_steady(rates: list[float], *, steady: bool) -> None:
    """They differ by less than 5 %, and are not zero."""
    assert is_steady(rates) is steady


@pytest.mark.parametrize(
    ("rates", "seconds", "steady"),
    [
        (itertools.repeat(100.0), 30, True),
        ((2.0**n for n in range(99)), 120, False),
        (iter([1, 2, 4] * 2 + [5] * 3), 45, True),
    ],
)
async def test_a_warm_up_ends_when_it_is_steady_or_takes_too_long(
    rates: Iterator[float], seconds: float, *, steady: bool
) -> None:
    """Not before its shortest time; each window is kept."""
    passed_s = 0.0

    async def window() -> dict[str, float]:
        nonlocal passed_s
        passed_s += PLAN.window_s
        return {"per_s": next(rates)}

    found = await warm_up(window, PLAN, lambda: passed_s)
    assert (found["seconds"], found["steady"], len(found["rates"])) == (seconds, steady, seconds / PLAN.window_s)


class Sleeper(System):
    """A process that sleeps, and that notes which of its kind were stopped when it was measured."""

    def __init__(self, name: str, order: list[str]) -> None:
        self.name, self.order, self.others = name, order, list[Sleeper]()

    @asynccontextmanager
    async def running(self, folder: Path, plan: Plan) -> AsyncIterator[dict[str, Any]]:
        self.process = await asyncio.create_subprocess_exec("sleep", "60")
        yield {"folder": folder.name}
        self.process.terminate()  # a stopped process would not end
        await self.process.wait()

    async def warm_up(self, plan: Plan) -> dict[str, Any]:
        return {"send": {"steady": True}}

    async def settle(self) -> None:
        self.order.append(f"settle {self.name}")

    async def measure(self, plan: Plan) -> dict[str, Any]:
        self.order.append(self.name)
        return {"stopped": [state_of(one.process.pid) == "T" for one in (self, *self.others)]}

    def process_ids(self) -> list[int]:
        return [self.process.pid]


async def test_one_system_runs_while_the_others_are_stopped(tmp_path: Path) -> None:
    """Each round begins with another one, each is tried before it is measured, and all end."""
    order: list[str] = []
    one, other = Sleeper("one", order), Sleeper("other", order)
    one.others, other.others = [other], [one]
    found = await compare([one, other], dataclasses.replace(PLAN, rounds=2), tmp_path)
    assert [name for name in order if "settle" not in name] == ["one", "other", "other", "one"]
    assert order[::2] == [f"settle {name}" for name in order[1::2]]
    assert found["one"]["start"] == {"folder": "one-1"}
    for system in found.values():
        assert [each["stopped"] for each in system["rounds"]] == [[False, True]] * 2
    assert one.process.returncode == other.process.returncode == -signal.SIGTERM


def test_the_picture_has_every_row_and_stays_the_same(tmp_path: Path) -> None:
    """The same rows make the same bytes, so that a commit shows only what changed."""
    pytest.importorskip("matplotlib", reason="NO matplotlib: nothing was drawn; run `make bench-peers`")
    figures = PeerRow("one", "sends", 400.0, 200.0, "/s"), PeerRow("two", "p50", 50.0, 1.0, " ms", True)
    some = [Compared((one,)) for one in figures]
    for name in ("a.svg", "b.svg"):
        draw(some, tmp_path / name)
    first = (tmp_path / "a.svg").read_text()
    assert first == (tmp_path / "b.svg").read_text()
    for words in ("sends", "p50", "2.00", "0.02", ">one<", ">two<"):
        assert words in first


def test_without_java_it_says_so_and_skips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 77, and the missing programs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["peers"])
    assert command.main() == command.SKIPPED
    assert "NOT MEASURED: no java, javac, mvn: install a JDK" in capsys.readouterr().out


async def test_systems_are_measured_in_several_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is written after each group, also if the next one fails, and keeps the figures of earlier runs."""
    measured = result(ortoo=[single(500.0, enode=1.0)], rocketmq=[single(1000.0, broker=2.0)])["systems"]
    chosen = [[Sleeper("ortoo", []), Sleeper("rocketmq", [])], [Sleeper("kafka", [])]]

    async def compared_once(systems: Sequence[System], plan: Plan, folder: Path) -> dict[str, Any]:
        if systems[0].name == "kafka":
            raise LoadFailed("no answer")
        return {one.name: measured[one.name] for one in systems}

    monkeypatch.setattr(command, "groups", lambda: chosen)
    monkeypatch.setattr(command, "compare", compared_once)
    monkeypatch.setattr(command, "versions", lambda: result(ortoo=[])["versions"])
    monkeypatch.setattr(command, "draw", lambda rows, path: None)
    plan = dataclasses.replace(PLAN, rounds=1)
    kept = result(kafka_of_three=[{}])["systems"]
    with pytest.raises(LoadFailed):
        await command.measure(plan, {"ortoo", "rocketmq", "kafka"}, tmp_path, kept)
    written = load(tmp_path / "peers.json")
    assert written["systems"].keys() == {"ortoo", "rocketmq", "kafka of three"}
    assert written["ratios"]


def test_figures_of_another_setting_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what differs. The load average before a run may differ."""
    earlier = result(ortoo=[{}])
    here = {**earlier["setting"], "load_average_before": 9.0}
    monkeypatch.setattr(command, "setting", lambda: here)
    monkeypatch.setattr(command, "versions", lambda: earlier["versions"])
    plan = dataclasses.replace(PLAN, rounds=1, seconds=5.0)
    assert command.systems_of(earlier, plan).keys() == {"ortoo"}
    here["python"] = "3.13.1"
    with pytest.raises(command.OtherSetting, match="other values of python, rounds: measure all systems again"):
        command.systems_of(earlier, dataclasses.replace(plan, rounds=4))


def fake_tools(folder: Path, monkeypatch: pytest.MonkeyPatch, mvn: str) -> None:
    """Java that is never run, and a Maven that does as it is told."""
    for name, text in {"java": "", "javac": "", "mvn": mvn}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_without_librdkafka_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is installed by the target, not by `make setup`."""
    fake_tools(tmp_path, monkeypatch, "")
    monkeypatch.setattr(jars, "KAFKA_CLIENT", "a_package_that_nobody_has")
    with pytest.raises(jars.NotHere, match="make bench-peers"):
        jars.check_tools()


def test_jars_are_brought_once_for_each_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloaded files stay. Another version is fetched into an empty folder. A refused download is retried."""
    fake_tools(tmp_path, monkeypatch, f"echo once >> {tmp_path}/fetched; touch one.jar")
    monkeypatch.setattr(jars, "FOLDER", tmp_path / "peers")
    folder = jars.bring("client")
    assert jars.bring("client") == folder
    assert (tmp_path / "fetched").read_text() == "once\n"
    assert "<artifactId>rocketmq-client-java</artifactId><version>" in (folder / "pom.xml").read_text()
    (folder / "old.jar").touch()
    monkeypatch.setitem(jars.ARTEFACTS, "client", (("g", "a", "2"),))
    assert not (jars.bring("client") / "old.jar").exists()
    fake_tools(tmp_path, monkeypatch, "echo no network; exit 1")
    monkeypatch.setitem(jars.ARTEFACTS, "client", (("g", "a", "3"),))
    for _ in range(2):
        with pytest.raises(jars.NotHere, match="no network"):
            jars.bring("client")


PROGRAM = """
import sys
print("end {}", flush=True)
for line in sys.stdin:
    print("begin", flush=True)
    if "closing" in line:
        print("stop", flush=True)
    print("failed " + line.strip() if "bad" in line else 'end {"messages": 3}', flush=True)
"""


async def test_a_load_program_answers_or_says_why_not(tmp_path: Path) -> None:
    """A command's figures come back; one that failed is told with its words."""
    async with _running(tmp_path, (sys.executable, "-c", PROGRAM)) as load:
        assert await load.run("send", 3) == {"messages": 3}
        with pytest.raises(LoadFailed, match="bad command"):
            await load.run("bad", "command")


async def test_processor_time_is_that_of_what_is_counted(tmp_path: Path) -> None:
    """Up to the end, or until the program says that it only closes what it opened."""
    seen_s = iter([0.0, 1.2, 100.0, 103.0])
    servers: Any = SimpleNamespace(cpu_s=lambda: {"enode": next(seen_s)})
    async with _running(tmp_path, (sys.executable, "-c", PROGRAM)) as load:
        assert (await load.run("push", "closing", servers=servers))["cpu_us"] == {"enode": 400_000.0}
        assert (await load.run("send", servers=servers))["cpu_us"] == {"enode": 1_000_000.0}
