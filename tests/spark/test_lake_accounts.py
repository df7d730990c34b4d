"""A lake keeps an account of its archives and replays: each message is added once, and a replay continues exactly."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")
pytest.importorskip("deltalake", reason="deltalake is not installed; run `make spark-setup`")

from ortoo.client import OrtooError, Queue
from ortoo.common.errors import Conflict
from ortoo.spark.core.offsets import SourceOffsets
from ortoo.spark.lake.accounts import LakeAccount, LakeAccounts
from ortoo.spark.lake.checkpoint import Checkpoint
from ortoo.spark.lake.table import NOTES, Lake
from ortoo.spark.pipeline.app import main
from ortoo.spark.pipeline.jobs import replay as replaying
from ortoo.spark.pipeline.jobs.archive import archive
from ortoo.spark.pipeline.jobs.compact import compact
from ortoo.spark.pipeline.jobs.replay import replay
from ortoo.spark.pipeline.runtime.settings import (
    ArchiveSettings,
    CompactSettings,
    LakeSettings,
    PipelineSettings,
    ReplaySettings,
)
from tests.spark.sending import numbered, send, stored
from tests.spark.session import Broker

FORMATS = pytest.mark.parametrize("lake_format", [pytest.param("delta", marks=pytest.mark.long), "parquet"])
"""A plain lake has fewer guarantees of its own; the tests of the pipeline use both."""


@pytest.fixture
def settings(broker: Broker, topic: str, folder: Path, request: pytest.FixtureRequest) -> PipelineSettings:
    """A lake in the test's folder, in the format of the test's parameter."""
    kind = getattr(request.node, "callspec", None)
    lake_format = kind.params.get("lake_format", "delta") if kind else "delta"
    return PipelineSettings(
        address=broker.address,
        lake=LakeSettings(str(folder / "lake"), lake_format),
        archive=ArchiveSettings(topics=(topic,), max_offsets_per_trigger=400),
        compact=CompactSettings(open_days=0),
        replay=ReplaySettings(topic=f"{topic[:90]}-back", create_queue_count=2, tasks=2),
    )


def with_checkpoint(settings: PipelineSettings, folder: Path, policy: str) -> PipelineSettings:
    """The same archive with another checkpoint."""
    job = replace(settings.archive, checkpoint_path=str(folder / f"checkpoint-{policy}"), on_new_checkpoint=policy)
    return replace(settings, archive=job)


def numbers(spark: Any, settings: PipelineSettings) -> list[int]:
    """The bodies of the lake, which are numbers, in order."""
    lake = Lake(settings.lake.path, settings.lake.format)
    return sorted(int(bytes(row.body)) for row in lake.read(spark).select("body").collect())


def replayed(spark: Any, broker: Broker, settings: PipelineSettings) -> list[int]:
    """The bodies of the topic of the replay, in order."""
    options = {"address": broker.address, "subscribe": settings.replay.topic, "columns": "body"}
    rows = spark.read.format("ortoo").options(**options).load().collect()
    return sorted(int(bytes(row.body)) for row in rows)


@FORMATS
def test_a_second_or_lost_checkpoint_adds_no_message_again(
    spark: Any, broker: Broker, topic: str, settings: PipelineSettings, folder: Path, lake_format: str
) -> None:
    """It is refused with the remedy, or continues where the lake ends. The former checkpoint is refused then."""
    said: list[str] = []
    Path(settings.lake.path).mkdir()
    send(broker, topic, numbered(500))
    archive(spark, settings, said.append, once=True)
    send(broker, topic, numbered(300, 500))
    with pytest.raises(Conflict, match=r"has the messages of .* on_new_checkpoint = .continue. to start"):
        archive(spark, with_checkpoint(settings, folder, "refuse"), said.append, once=True)
    assert numbers(spark, settings) == list(range(500))
    second = with_checkpoint(settings, folder, "continue")
    broker.client.admin.update_topic(topic, read_queue_count=5, write_queue_count=5)
    for count in (0, 100):
        send(broker, topic, numbered(count, 800))
        outcome = archive(spark, second, said.append, once=True)
        assert outcome is not None
        assert (outcome.is_complete, outcome.rows) == (True, 800 + count), list(outcome.lines())
    assert numbers(spark, settings) == list(range(900))
    send(broker, topic, numbered(50, 900))
    with pytest.raises(Conflict, match="has continued the archive of this checkpoint"):
        archive(spark, settings, said.append, once=True)
    compact(second, said.append)
    assert numbers(spark, settings) == list(range(900))


def test_a_checkpoint_that_starts_while_the_other_one_works_is_refused(
    spark: Any, broker: Broker, topic: str, settings: PipelineSettings, folder: Path
) -> None:
    """Two new checkpoints start before the lake has an account. The sink of the second one refuses its batch."""
    said: list[str] = []
    send(broker, topic, numbered(100))
    second = with_checkpoint(settings, folder, "refuse")
    archive(spark, settings, said.append, once=True)
    note = next((Path(settings.lake.path) / NOTES).glob("account-*"))
    note.rename(folder / note.name)  # the second checkpoint starts before the first one has added its first batch
    with pytest.raises(Exception, match="from another archive"):
        _start_then(spark, second, lambda: (folder / note.name).rename(note))
    assert numbers(spark, settings) == list(range(100))


def test_of_two_checkpoints_that_start_at_the_same_time_at_most_one_adds_its_batch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found no account, and then each one stores its own. The second one withdraws its account."""
    lake = Lake(str(folder / "lake"), "parquet")
    (folder / "lake" / NOTES).mkdir(parents=True)
    accounts, queue = LakeAccounts(lake), Queue("orders", "enode-0", 0)
    checkpoints = []
    for name in ("first", "second"):
        offsets = folder / name / "offsets"
        offsets.mkdir(parents=True)
        for number, end in enumerate((0, 10)):
            text = json.dumps(SourceOffsets({queue: end}, {"orders": 7}).to_json())
            (offsets / str(number)).write_text(f"v1\n{{}}\n{text}\n")
        checkpoints.append(Checkpoint(folder / name))
    found = LakeAccounts.all
    started: list[bool] = []

    def found_then_other_starts(self: LakeAccounts) -> list[LakeAccount]:
        before = found(self)
        if not started:
            started.append(True)
            accounts.begin_batch("first", checkpoints[0], 1)
        return before

    monkeypatch.setattr(LakeAccounts, "all", found_then_other_starts)
    with pytest.raises(Conflict, match="from another archive, the job first"):
        accounts.begin_batch("second", checkpoints[1], 1)
    assert [account.job_id for account in accounts.all()] == ["first"]
    accounts.begin_batch("first", checkpoints[0], 1)


def _start_then(spark: Any, settings: PipelineSettings, step: Any) -> None:
    """Run an archive; `step` happens when it says that it has started."""
    done: list[str] = []

    def say(text: str) -> None:
        if not done:
            done.append(text)
            step()

    archive(spark, settings, say, once=True)


@FORMATS
@pytest.mark.parametrize("keeps_checkpoint", [True, False])
def test_a_lake_of_an_older_version_gets_its_accounts_at_the_first_run(
    spark: Any,
    broker: Broker,
    topic: str,
    settings: PipelineSettings,
    folder: Path,
    lake_format: str,
    keeps_checkpoint: bool,
) -> None:
    """Its checkpoint continues. Another one is refused, or continues behind the rows of the lake."""
    said: list[str] = []
    send(broker, topic, numbered(500))
    archive(spark, settings, said.append, once=True)
    for note in (Path(settings.lake.path) / NOTES).glob("account*"):
        note.unlink()
    send(broker, topic, numbered(100, 500))
    if not keeps_checkpoint:
        shutil.rmtree(settings.checkpoint)
        with pytest.raises(Conflict, match="another archive, the job rows-without-account"):
            archive(spark, settings, said.append, once=True)
        settings = replace(settings, archive=replace(settings.archive, on_new_checkpoint="continue"))
    outcome = archive(spark, settings, said.append, once=True)
    assert outcome is not None
    assert (outcome.is_complete, outcome.rows) == (True, 600)
    assert numbers(spark, settings) == list(range(600))
    with pytest.raises(Conflict, match="from another archive"):
        archive(spark, with_checkpoint(settings, folder, "refuse"), said.append, once=True)


def test_accounts_are_listed_and_removed_by_a_command(
    spark: Any, broker: Broker, topic: str, settings: PipelineSettings, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`accounts` shows job, checkpoint and offsets. After `--reset` a new checkpoint may write the topic again."""
    said: list[str] = []
    send(broker, topic, numbered(100))
    archive(spark, settings, said.append, once=True)
    replay(spark, settings, said.append)
    file = folder / "pipeline.toml"
    file.write_text(f'address = "{broker.address}"\n[lake]\npath = "{settings.lake.path}"\n')
    assert main(["accounts", "--config", str(file)]) == 0
    shown = capsys.readouterr().out
    assert f"checkpoint {settings.checkpoint}" in shown
    assert f"of {topic} on enode-0: 0 to " in shown
    assert f"into {settings.replay.topic}: increment 0 is the newest" in shown
    job_id = shown.split("archive ")[1].split(",")[0]
    assert main(["accounts", "--config", str(file), "--reset", "x"]) == 1
    assert "has no account 'x'" in capsys.readouterr().err
    assert main(["accounts", "--config", str(file), "--reset", job_id]) == 0
    assert "a new checkpoint for its topics would add their" in capsys.readouterr().out
    shutil.rmtree(settings.checkpoint)
    archive(spark, settings, said.append, once=True)
    assert len(numbers(spark, settings)) == 200


@FORMATS
def test_a_replay_that_was_broken_off_goes_on_exactly_and_then_takes_newer_rows(
    spark: Any,
    broker: Broker,
    topic: str,
    settings: PipelineSettings,
    lake_format: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lake grows and is compacted between two attempts. Each row is replayed once, in one job."""
    said: list[str] = []
    send(broker, topic, numbered(1_000))
    archive(spark, settings, said.append, once=True)
    with monkeypatch.context() as planted:  # every message is stored, and the driver dies before its commit
        options = replaying.sink_options
        planted.setattr(replaying, "sink_options", lambda *job: options(*job) | {"deliverySemantics": "idempotent"})
        replay(spark, settings, said.append)
    assert stored(broker, settings.replay.topic) == 1_000
    send(broker, topic, numbered(500, 1_000))
    archive(spark, settings, said.append, once=True)
    compact(settings, said.append)
    assert replay(spark, replace(settings, replay=replace(settings.replay, dry_run=True)), said.append) == 1_500
    assert replay(spark, settings, said.append) == 1_500
    assert replayed(spark, broker, settings) == list(range(1_500))
    assert replay(spark, settings, said.append) == 0
    assert "no newer rows, so nothing was added" in said[-1]
    send(broker, topic, numbered(10, 1_500))
    archive(spark, settings, said.append, once=True)
    assert replay(spark, settings, said.append) == 10
    assert replayed(spark, broker, settings) == list(range(1_510))


def test_a_replay_goes_on_only_as_the_same_job(
    spark: Any, broker: Broker, topic: str, settings: PipelineSettings
) -> None:
    """Another condition under the same id is refused. `:started_at` is the same time in a repetition."""
    said: list[str] = []
    send(broker, topic, numbered(20))
    archive(spark, settings, said.append, once=True)
    where = "expire_at is null or expire_at > :started_at"
    job = replace(settings.replay, job_id="2026/1", where=where)
    assert replay(spark, replace(settings, replay=job), said.append) == 20
    with pytest.raises(OrtooError, match=r"replay.where: .* was started with"):
        replay(spark, replace(settings, replay=replace(job, where="true")), said.append)


def test_messages_of_a_topic_that_was_created_again_are_replayed_too(
    spark: Any, broker: Broker, topic: str, settings: PipelineSettings
) -> None:
    """Their offsets start at 0 again, and they are newer rows of the lake."""
    said: list[str] = []
    settings = replace(settings, archive=replace(settings.archive, fail_on_data_loss=False))
    send(broker, topic, numbered(100))
    archive(spark, settings, said.append, once=True)
    assert replay(spark, settings, said.append) == 100
    broker.client.admin.delete_topic(topic, at_once=True)
    broker.client.admin.create_topic(topic, queue_count=4)
    send(broker, topic, numbered(50, 100))
    archive(spark, settings, said.append, once=True)
    assert numbers(spark, settings) == list(range(150))
    assert replay(spark, settings, said.append) == 50
    assert replayed(spark, broker, settings) == list(range(150))


def test_a_replay_into_a_topic_that_was_created_again_is_refused(
    spark: Any, broker: Broker, topic: str, settings: PipelineSettings
) -> None:
    """The next increment alone would leave a topic without the earlier ones. Another job replays all rows."""
    said: list[str] = []
    send(broker, topic, numbered(30))
    archive(spark, settings, said.append, once=True)
    assert replay(spark, settings, said.append) == 30
    broker.client.admin.delete_topic(settings.replay.topic, at_once=True)
    with pytest.raises(Conflict, match="was created again after increment 0"):
        replay(spark, settings, said.append)
    assert replay(spark, replace(settings, replay=replace(settings.replay, job_id="again")), said.append) == 30
