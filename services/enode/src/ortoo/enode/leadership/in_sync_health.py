"""Reports whether a replica is in sync, as a name of the health service, so that operators restart one at a time."""

from dataclasses import dataclass
from typing import Final

from ortoo.common.telemetry.metrics import Metrics
from ortoo.enode.leadership.replica_process import ReplicaProcess
from ortoo.enode.replication.in_sync import is_in_sync, lag_bytes

IN_SYNC: Final = "in-sync"
"""The name of the health service for readiness probes of an enode with several replicas."""
CHECK_INTERVAL_S: Final = 0.5


@dataclass
class InSyncHealth:
    """Compares the state of a replica with that of the health service; the caller calls `check` regularly."""

    process: ReplicaProcess
    is_reported: bool = False
    """Whether the health service reports that the replica is in sync."""

    @property
    def is_in_sync(self) -> bool:
        """Whether the replica is in sync now."""
        driver = self.process.driver
        return driver is not None and is_in_sync(
            driver.replica,
            driver.leader_committed,
            is_leading=driver.leading_epoch is not None,
            is_leader_silent=driver.is_leader_silent,
        )

    @property
    def is_ready(self) -> bool:
        """Whether the replica accepts requests or, if another replica leads, is in sync."""
        server, driver = self.process.server, self.process.driver
        if server.serving or server.draining.is_set():
            return server.serving
        return driver is not None and driver.leading_epoch is None and self.is_in_sync

    @property
    def lag_bytes(self) -> int:
        """The part of the committed log that is missing on this replica's disk."""
        driver = self.process.driver
        return lag_bytes(driver.replica, driver.leader_committed) if driver is not None else 0

    def register(self, metrics: Metrics) -> None:
        """Register the metrics."""
        metrics.gauge(
            "ortoo_replica_in_sync", "1 while the replica leads, or follows in sync.", lambda: int(self.is_in_sync)
        )
        metrics.gauge(
            "ortoo_replica_lag_bytes", "Bytes of the committed log that this replica lacks.", lambda: self.lag_bytes
        )

    async def check(self) -> None:
        """Report a change to the health service, except while the server drains."""
        if self.process.server.draining.is_set() or self.is_in_sync == self.is_reported:
            return
        self.is_reported = not self.is_reported
        await self.process.server.set_health(IN_SYNC, self.is_reported)
