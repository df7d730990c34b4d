"""The settings of the jobs, in one TOML file with one table per job; unknown names are errors."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.common.errors import Invalid
from ortoo.spark.core.cluster_options import UNAVAILABLE_TIMEOUT_MS, ClusterOptions
from ortoo.spark.lake.table import Lake


@dataclass(frozen=True)
class LakeSettings:
    """Location and format of the lake."""

    path: str = ""
    format: str = "delta"
    """delta or parquet."""
    schema_changes: str = "refuse"
    """Handling of columns that the lake does not have: refuse, or merge."""
    storage_options: tuple[str, ...] = ()
    """Options for an object store, such as "AWS_REGION=eu-central-1"; set keys in the environment instead."""


@dataclass(frozen=True)
class ArchiveSettings:
    """Settings of the job that archives topics into the lake."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    starting_offsets: str = "earliest"
    columns: tuple[str, ...] = ()
    """The columns to store; empty = all."""
    checkpoint_path: str = ""
    """Folder of the query's checkpoint; empty = beside the lake."""
    max_offsets_per_trigger: int = 500_000
    interval_s: float = 10.0
    """Interval of batches in a continuous run."""
    consumer_group: str = ""
    """A group that shows the progress of the archive."""
    fail_on_data_loss: bool = True
    on_new_checkpoint: str = "refuse"
    """Handling of a new checkpoint for topics that the lake already has: refuse, or continue where the lake ends."""


@dataclass(frozen=True)
class CompactSettings:
    """Settings of the job that merges small files of the lake."""

    open_days: int = 1
    """Number of newest dates that are not compacted."""
    target_bytes: int = 128 << 20
    vacuum_hours: int = 0
    """Remove files that no version younger than this needs; 0 = keep them."""


@dataclass(frozen=True)
class ReplaySettings:
    """Settings of the job that sends messages of the lake to a topic."""

    topic: str = ""
    where: str = ""
    """An SQL condition over the lake's columns."""
    job_id: str = ""
    """Id of the job; a second run with the same id adds nothing."""
    create_queue_count: int = 0
    """Create the topic with this number of queues unless it exists; 0 = it must exist."""
    max_rate_per_second: int = 0
    tasks: int = 4
    mark_property: str = "x-replayed-from"
    """Name of the property for the original position (topic/enode/queue/offset); empty = none."""
    dry_run: bool = False


@dataclass(frozen=True)
class TraceSettings:
    """Settings of the report on latencies of messages, retries and dead letters."""

    output_path: str = ""
    where: str = ""
    bucket: str = "1 hour"
    """Interval of one row for each topic."""


@dataclass(frozen=True)
class LagSettings:
    """Settings of the report on the lag of groups."""

    output_path: str = ""
    groups: tuple[str, ...] = ()
    """Empty = all."""
    interval_s: float = 60.0


@dataclass(frozen=True)
class SparkSettings:
    """Settings of the Spark session; without effect in a session that `spark-submit` made."""

    master: str = ""
    """For example local[2]; empty = as in spark-submit, or local[*]."""
    conf: tuple[str, ...] = ()
    """For example "spark.executor.memory=2g"."""


@dataclass(frozen=True)
class PipelineSettings:
    """The settings of one pipeline: a cluster, a lake, and the jobs."""

    address: str = "localhost:8081"
    unavailable_timeout_ms: int = UNAVAILABLE_TIMEOUT_MS
    """The time for which a job waits for snodes and enodes that are down."""
    lake: LakeSettings = field(default_factory=LakeSettings)
    archive: ArchiveSettings = field(default_factory=ArchiveSettings)
    compact: CompactSettings = field(default_factory=CompactSettings)
    replay: ReplaySettings = field(default_factory=ReplaySettings)
    trace: TraceSettings = field(default_factory=TraceSettings)
    lag: LagSettings = field(default_factory=LagSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)

    @property
    def cluster(self) -> ClusterOptions:
        """The cluster of the jobs."""
        return ClusterOptions((self.address,), unavailable_timeout_ms=self.unavailable_timeout_ms)

    @property
    def cluster_options(self) -> dict[str, str]:
        """The same for reads and writes by Spark."""
        return {"address": self.address, "unavailableTimeoutMs": str(self.unavailable_timeout_ms)}

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the archive's query."""
        return Path(self.archive.checkpoint_path or f"{self.lake.path.rstrip('/')}_checkpoint")

    def open_lake(self) -> Lake:
        """The lake of the settings. Errors: Invalid for a missing path, or a wrong or incomplete setting."""
        if not self.lake.path:
            raise Invalid("missing path of the lake; set `path` in the table [lake]", field="lake.path")
        if self.lake.schema_changes not in ("refuse", "merge"):
            raise Invalid(f"{self.lake.schema_changes!r}; expected refuse or merge", field="lake.schema_changes")
        lake = Lake(
            self.lake.path.rstrip("/"), self.lake.format, parse_pairs(self.lake.storage_options, "lake.storage_options")
        )
        if lake.is_remote and not self.archive.checkpoint_path:
            raise Invalid(
                "missing folder for the checkpoint; it is required because the lake is in an object store",
                field="archive.checkpoint_path",
            )
        return lake

    def output_folder(self, job: str, given: str) -> Path:
        """The folder for a job's reports: the given folder, or a folder beside the lake."""
        beside = self.checkpoint.parent / f"{Path(self.lake.path).name}" if "://" in self.lake.path else self.lake.path
        folder = Path(given or f"{str(beside).rstrip('/')}_{job}")
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def parse_pairs(given: Sequence[str], field: str) -> tuple[tuple[str, str], ...]:
    """Parse texts such as "name=value". Errors: Invalid for a text without `=`."""
    if wrong := [pair for pair in given if "=" not in pair]:
        raise Invalid(f"{wrong[0]!r}; expected name=value", field=field)
    return tuple((name.strip(), value.strip()) for name, _, value in (pair.partition("=") for pair in given))
