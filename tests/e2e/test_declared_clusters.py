"""`ortoo apply` twice changes nothing, and `ortoo export` of one cluster makes another equal to it."""

from pathlib import Path

import pytest

from ortoo.client import connect
from ortoo.verification.servers import command
from ortoo.verification.servers.cluster import open_cluster

DECLARED = """
[[topic]]
name = "orders"
queues = 4
write_queues = 2
enodes = ["enode-1"]
type = "fifo"

[[topic]]
name = "everything"
queues = 0
permission = "read_only"
publish_order = ["enode-1:2", "enode-0:1"]

[[topic]]
name = "rooms"
type = "lite"
lite_ttl_ms = 3600000

[[group]]
name = "billing"
attempts = 0
slow_messages = 0
retry = "exponential:1s:10m"

[[group]]
name = "seen"

[[user]]
access_key = "ann.b"
secret_env = "ANN_SECRET"

[[user]]
access_key = "bob"
enabled = false
secret_env = "BOB_SECRET"
"""
SCHEDULES = """
[[schedule]]
topic = "everything"
name = "refresh"
every = "90s"
suspended = true
body_base64 = "/w=="
properties = ["b=2", "a=1=1"]

[[schedule]]
topic = "everything"
name = "report"
cron = "0 6 * * 1-5"
timezone = "Europe/Berlin"
catch_up = "all"
body_base64 = "cmVwb3J0"
keys = ["k"]
tag = "daily"
"""
SAME = "everything is as the file says"


async def typed(address: str, *words: str) -> str:
    """The output of a command that succeeds."""
    done = await command.run(["ortoo", *words], address, timeout_s=120)
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the declarations; the secrets are in the environment."""
    for name in ("ANN_SECRET", "BOB_SECRET"):
        monkeypatch.setenv(name, "secret of a user")
    (found := tmp_path / "declared.toml").write_text(DECLARED)
    return found


async def test_a_file_changes_nothing_the_second_time(file: Path, tmp_path: Path) -> None:
    """Each form of a value, placements, a group that a consumer made, and users are the same after one run."""
    async with open_cluster(tmp_path / "cluster", enodes=2) as cluster:
        async with connect(cluster.address) as mq:
            await mq.admin.create_topic("t")
            for group in ("seen", "made"):
                async with mq.consumer(group, "t") as consumer:
                    while not consumer.queues:
                        await cluster.clock.sleep(0.05)
        assert "would change 7 entries" in await typed(cluster.address, "apply", "-f", str(file), "--dry-run")
        assert "changed 7 entries" in await typed(cluster.address, "apply", "-f", str(file))
        assert await typed(cluster.address, "apply", "-f", str(file)) == SAME
        (exported := tmp_path / "exported.toml").write_text(await typed(cluster.address, "export"))
        assert await typed(cluster.address, "apply", "-f", str(exported)) == SAME
        async with connect(cluster.address) as mq:
            users = await mq.admin.users.list()
            assert [(one.access_key, one.enabled) for one in users] == [("ann.b", True), ("bob", False)]
            placements = {one.name: [p.enode for p in one.placements] for one in await mq.admin.list_topics()}
            assert placements["orders"] == ["enode-1"]
            assert "t" in placements, "a topic that the file does not name stays"
            assert {"seen", "made"} <= {one.name for one in await mq.admin.list_groups()}
        assert 'name = "made"' not in exported.read_text()
        without = await typed(cluster.address, "export", "--without-enodes")
        assert [line for line in exported.read_text().splitlines() if line.startswith(("enodes", "publish_order"))]
        assert not [line for line in without.splitlines() if line.startswith(("enodes", "publish_order"))]


async def test_an_export_makes_another_cluster_equal(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second cluster exports the same text; a secret that is missing is named before the first change."""
    exported = tmp_path / "exported.toml"
    async with open_cluster(tmp_path / "first", enodes=2) as cluster:
        await typed(cluster.address, "apply", "-f", str(file))
        exported.write_text(await typed(cluster.address, "export"))
    async with open_cluster(tmp_path / "second", enodes=2) as cluster:
        monkeypatch.delenv("ANN_SECRET")
        refused = await command.run(["ortoo", "apply", "-f", str(file)], cluster.address, timeout_s=120)
        assert refused.exit_code == 1
        assert "secret_env: the environment variable ANN_SECRET is not set" in refused.stderr
        assert await typed(cluster.address, "topic", "list", "--json") == ""
        for name in ("ORTOO_SECRET_KEY_ANN_B", "ORTOO_SECRET_KEY_BOB"):
            assert f'secret_env = "{name}"' in exported.read_text()
        # The commands of a test see no variable that begins with ORTOO_.
        exported.write_text(exported.read_text().replace("ORTOO_SECRET", "SECRET"))
        for name in ("SECRET_KEY_ANN_B", "SECRET_KEY_BOB"):
            monkeypatch.setenv(name, "secret of a user")
        await typed(cluster.address, "apply", "-f", str(exported))
        again = await typed(cluster.address, "export")
        assert again.replace("ORTOO_SECRET", "SECRET") == exported.read_text()


async def test_schedules_are_declared_and_exported(tmp_path: Path) -> None:
    """A second run changes nothing, and a changed rule or message is one line. The export declares the same."""
    (file := tmp_path / "declared.toml").write_text('[[topic]]\nname = "everything"\nqueues = 1\n' + SCHEDULES)
    async with open_cluster(tmp_path / "cluster") as cluster, connect(cluster.address) as mq:
        assert "changed 3 entries" in await typed(cluster.address, "apply", "-f", str(file))
        assert await typed(cluster.address, "apply", "-f", str(file)) == SAME
        (exported := tmp_path / "exported.toml").write_text(await typed(cluster.address, "export"))
        assert await typed(cluster.address, "apply", "-f", str(exported)) == SAME
        refresh = await mq.admin.schedules.describe("everything", "refresh")
        report = await mq.admin.schedules.describe("everything", "report")
        assert refresh.message is not None
        assert report.message is not None
        assert (refresh.period_ms, refresh.suspended, refresh.message.body) == (90_000, True, b"\xff")
        assert dict(refresh.message.properties) == {"a": "1=1", "b": "2"}
        assert (report.cron, report.timezone, report.catch_up) == ("0 6 * * 1-5", "Europe/Berlin", "all")
        assert (report.message.body, report.message.tag, tuple(report.message.keys)) == (b"report", "daily", ("k",))
        changed = exported.read_text().replace('cron = "0 6 * * 1-5"', 'cron = "0 7 * * 1-5"')
        file.write_text(changed.replace("suspended = true\n", "suspended = false\n"))
        told = await typed(cluster.address, "apply", "-f", str(file))
        assert "~ schedule everything/report: cron '0 6 * * 1-5' → '0 7 * * 1-5'" in told
        assert "~ schedule everything/refresh: suspended True → False" in told
        assert not (await mq.admin.schedules.describe("everything", "refresh")).suspended
        again = await mq.admin.schedules.describe("everything", "report")
        assert again.message is not None
        assert (again.cron, again.message.body) == ("0 7 * * 1-5", b"report")
