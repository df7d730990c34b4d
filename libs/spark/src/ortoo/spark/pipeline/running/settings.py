"""The settings of the jobs: one TOML file, one table a job, unknown names are errors."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.common.errors import Invalid
from ortoo.spark.core.link import Cluster
from ortoo.spark.lake.table import Lake


@dataclass(frozen=True)
class LakeSettings:
    """Where messages are kept."""

    path: str = ""
    format: str = "delta"
    """delta or parquet."""
    schema_changes: str = "refuse"
    """Of columns that the lake has not: refuse, or merge."""
    storage_options: tuple[str, ...] = ()
    """For an object store, such as "AWS_REGION=eu-central-1"; keys are better left to the environment."""


@dataclass(frozen=True)
class ArchiveSettings:
    """Topics into the lake."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    starting_offsets: str = "earliest"
    columns: tuple[str, ...] = ()
    """What is kept; everything when empty."""
    checkpoint_path: str = ""
    """Where the query keeps its place; beside the lake when empty."""
    max_offsets_per_trigger: int = 500_000
    interval_s: float = 10.0
    """How often a continuous run takes a batch."""
    consumer_group: str = ""
    """A group that shows how far the archive is."""
    fail_on_data_loss: bool = True


@dataclass(frozen=True)
class CompactSettings:
    """Few large files instead of many small ones."""

    open_days: int = 1
    """So many of the newest dates are left alone."""
    target_bytes: int = 128 << 20
    vacuum_hours: int = 0
    """Remove files that no version younger than this needs; 0 = leave them."""


@dataclass(frozen=True)
class ReplaySettings:
    """The lake into a topic."""

    topic: str = ""
    where: str = ""
    """A condition in SQL over the lake's columns."""
    job_id: str = ""
    """The same id again adds nothing again."""
    create_queue_count: int = 0
    """Create the topic with so many queues unless it is there; 0 = it must be there."""
    max_rate_per_second: int = 0
    tasks: int = 4
    mark_property: str = "x-replayed-from"
    """A property that says where each message was: topic/enode/queue/offset; empty = none."""
    dry_run: bool = False


@dataclass(frozen=True)
class TraceSettings:
    """How long messages took, and how many were tried again or given up."""

    output_path: str = ""
    where: str = ""
    bucket: str = "1 hour"
    """One row for each topic and so long a time."""


@dataclass(frozen=True)
class LagSettings:
    """How far groups are behind."""

    output_path: str = ""
    groups: tuple[str, ...] = ()
    """All when empty."""
    interval_s: float = 60.0


@dataclass(frozen=True)
class SparkSettings:
    """The session that jobs run in, unless `spark-submit` made one."""

    master: str = ""
    """Such as local[2]; empty = as spark-submit says, or local[*]."""
    conf: tuple[str, ...] = ()
    """Such as "spark.executor.memory=2g"."""


@dataclass(frozen=True)
class PipelineSettings:
    """One pipeline: a cluster, a lake, and what the jobs do with them."""

    address: str = "localhost:8081"
    lake: LakeSettings = field(default_factory=LakeSettings)
    archive: ArchiveSettings = field(default_factory=ArchiveSettings)
    compact: CompactSettings = field(default_factory=CompactSettings)
    replay: ReplaySettings = field(default_factory=ReplaySettings)
    trace: TraceSettings = field(default_factory=TraceSettings)
    lag: LagSettings = field(default_factory=LagSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)

    @property
    def cluster(self) -> Cluster:
        """The cluster that jobs ask."""
        return Cluster((self.address,))

    @property
    def checkpoint(self) -> Path:
        """Where the archive's query keeps its place."""
        return Path(self.archive.checkpoint_path or f"{self.lake.path.rstrip('/')}_checkpoint")

    def the_lake(self) -> Lake:
        """The lake. Errors: Invalid when the settings do not say where it is, or name no format."""
        if not self.lake.path:
            raise Invalid("where is the lake? Set `path` in the table [lake]", field="lake.path")
        if self.lake.schema_changes not in ("refuse", "merge"):
            raise Invalid(f"{self.lake.schema_changes!r}; expected refuse or merge", field="lake.schema_changes")
        lake = Lake(
            self.lake.path.rstrip("/"), self.lake.format, pairs(self.lake.storage_options, "lake.storage_options")
        )
        if lake.is_remote and not self.archive.checkpoint_path:
            raise Invalid("a lake in an object store needs a folder for checkpoints", field="archive.checkpoint_path")
        return lake

    def output(self, job: str, given: str) -> Path:
        """Where a job puts its reports: where it is told to, or beside the lake."""
        beside = self.checkpoint.parent / f"{Path(self.lake.path).name}" if "://" in self.lake.path else self.lake.path
        folder = Path(given or f"{str(beside).rstrip('/')}_{job}")
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def pairs(given: Sequence[str], field: str) -> tuple[tuple[str, str], ...]:
    """Texts such as "name=value". Errors: Invalid for one that is no pair."""
    if wrong := [pair for pair in given if "=" not in pair]:
        raise Invalid(f"{wrong[0]!r}; expected name=value", field=field)
    return tuple((name.strip(), value.strip()) for name, _, value in (pair.partition("=") for pair in given))
