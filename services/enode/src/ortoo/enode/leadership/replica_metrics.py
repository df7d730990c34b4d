"""The metrics of a replica, leading or not."""

from ortoo.common.telemetry.metrics import Metrics
from ortoo.enode.leadership.replica_process import ReplicaProcess
from ortoo.enode.observe.disk_space import register_disk_space


def register_replica(metrics: Metrics, process: ReplicaProcess) -> None:
    """Register the metrics of a replica."""
    register_disk_space(metrics, lambda: process.driver.log.engine.housekeeping if process.driver else None)
    metrics.counter(
        "ortoo_cut_messages_total",
        "Messages truncated from this replica's log, because the leader does not have them.",
        lambda: process.truncated_messages,
    )
    metrics.counter(
        "ortoo_repaired_frames_total",
        "Damaged frames of this replica's log that were repaired from another replica's copy.",
        lambda: process.repaired_frames,
    )
    metrics.counter(
        "ortoo_shipments_total",
        "Messages with parts of its log that this replica sent to others since it was opened.",
        lambda: process.driver.sent_messages if process.driver else 0,
    )
    metrics.counter(
        "ortoo_shipped_bytes_total",
        "Bytes of the log in these messages.",
        lambda: process.driver.sent_bytes if process.driver else 0,
    )
    metrics.gauge(
        "ortoo_state_differs",
        "Number of consecutive comparisons in which this replica's state differed from the leader's.",
        lambda: process.comparison.mismatches,
    )
