"""The comparison with RocketMQ and Kafka: its table, its picture, and its message where it cannot run."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.peers import __main__ as command
from bench.peers import jars
from bench.peers.load import LoadFailed, _running
from bench.peers.picture import draw
from bench.peers.table import PeerRow, medians, rows, table

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


def result(**systems: dict[str, Any]) -> dict[str, Any]:
    """The result of one round."""
    return {
        "setting": {"cores": 2, "memory_gib": 23.5, "kernel": "6.18.44-x", "python": "3.11.7"},
        "versions": dict.fromkeys(("rocketmq", "kafka", "client", "java", "confluent-kafka"), "1.2.3"),
        "rounds": 1,
        "seconds": 5.0,
        "systems": {name.replace("_", " "): one for name, one in systems.items()},
        "rounds_of": {"ortoo": [{"load_average": {"before": 1.5, "after": 2.5}, "others_share": 0.04}]},
    }


def test_a_ratio_above_one_means_ahead() -> None:
    """Twice the rate and half the time are both 2.00."""
    assert PeerRow("s", "sends", 400.0, 200.0, "/s").cells() == "| sends | 400/s | 200/s | 2.00 |"
    assert PeerRow("s", "p50", 2.5, 5.0, " ms", True).cells() == "| p50 | 2.50 ms | 5.00 ms | 2.00 |"


def test_the_table_has_what_both_sides_measured() -> None:
    """A section for each pair; a system without its counterpart is left out, and the load is told."""
    both = result(ortoo=single(500.0, enode=1000.0, snode=500.0), rocketmq=single(1000.0, broker=4000.0, proxy=2000.0))
    text = table(both)
    assert "Load average, of which the load itself is a part: 1.5 to 2.5. " in text
    assert "took 4 to 4 % of the machine meanwhile. A ratio" in text
    both["rounds_of"]["rocketmq"] = [{"load_average": {"before": 9.0, "after": 9.0}, "others_share": 0.4}]
    assert "took 4 to 40 % of the machine meanwhile, so that ratios tell little. A ratio" in table(both)
    assert "| Java: send, 64 in flight | 500/s | 1,000/s | 0.50 |" in text
    assert "| servers' processor time a message at 200/s | 1.50 ms | 6.00 ms | 4.00 |" in text
    assert "Kafka" not in text
    assert rows(result(ortoo=single(500.0, enode=1.0))) == []


def test_members_are_compared_with_one_member() -> None:
    """The leader, and the mean of its followers, beside the cost of an enode without replicas."""
    many = {"per_s": 300.0, "cpu_us": {"snode": 1.0, "leader": 1.5, "follower-1": 0.2, "follower-2": 0.4}}
    alone = {"per_s": 600.0, "cpu_us": {"snode": 1.0, "enode": 1.0}}
    three = {"bench many": many, "bench steady": steady(30.0)}
    found = rows(result(ortoo_of_three=three, ortoo_in_bulk={"bench many": alone, "bench steady": steady(10.0)}))
    assert [(row.ours, round(row.ratio, 2)) for row in found] == [
        (300.0, 0.5),
        (1.5, 0.67),
        (pytest.approx(0.3), 3.33),
        (60.0, 0.33),
    ]


def test_medians_keep_the_shape() -> None:
    """One slow round of three changes nothing."""
    some = [{"a": {"b": value}} for value in (9.0, 1.0, 2.0)]
    assert medians(some) == {"a": {"b": 2.0}}


def test_the_picture_has_every_row_and_stays_the_same(tmp_path: Path) -> None:
    """The same rows make the same bytes, so that a commit shows only what changed."""
    pytest.importorskip("matplotlib", reason="NO matplotlib: nothing was drawn; run `make bench-peers`")
    some = [PeerRow("one", "sends", 400.0, 200.0, "/s"), PeerRow("two", "p50", 50.0, 1.0, " ms", True)]
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
