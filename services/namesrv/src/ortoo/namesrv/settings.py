"""What may be chosen about a name server, by file, environment (`ORTOO_NAMESRV_...`) and command line."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ortoo.common.cluster.addresses import check_address, check_receiver
from ortoo.common.cluster.name_servers import addresses_of
from ortoo.common.cluster.names import check_process_name
from ortoo.common.errors import Invalid
from ortoo.common.process import settings

ENVIRON_PREFIX = "ORTOO_NAMESRV_"
IMPORTANT = ("name", "listen_address", "namesrv_address", "data_dir", "database_url")


@dataclass(frozen=True)
class Settings:
    """The settings of one name server."""

    name: str = "namesrv-0"
    """Its name in logs."""
    listen_address: str = "127.0.0.1:8071"
    """host:port to serve on; port 0 takes any free one."""
    namesrv_address: str = ""
    """All name servers over one database, this one among them: host:port, separated by `;`. Empty = it is alone."""
    data_dir: Path = Path("ortoo-data/namesrv")
    """Folder of the database file, when there is no `database_url`."""
    database_url: str = ""
    """SQLAlchemy URL of the database. Empty = an SQLite file `namesrv.db` in `data_dir`."""
    lease_s: float = 15.0
    """How long a process counts as alive after it announced itself."""
    expiry_interval_s: float = 1.0
    """How often leases are looked at."""
    sync_interval_s: float = 0.25
    """How often changes by other name servers over the same database are looked for."""
    watchers_max: int = 1_000
    """How many processes may follow the routes at once."""
    drain_delay_s: float = 0.0
    """How long everything is served after readiness went red at a stop, so that load balancers hear of it."""
    stop_grace_s: float = 5.0
    """How long running calls may go on after a stop was asked for."""
    metrics_address: str = ""
    """host:port where Prometheus scrapes (/metrics, /healthz, /readyz). Empty = nowhere."""
    metrics_endpoint: str = ""
    """http://host:port of an OTLP/gRPC receiver that metrics are sent to. Empty = none."""
    metrics_interval_s: float = 60.0
    """How often they are sent there."""
    log_level: str = "info"
    """debug, info, warning or error."""

    def check(self) -> None:
        """Refuse settings that cannot work. Errors: Invalid, naming the field."""
        check_process_name(self.name, "name")
        check_address(self.listen_address, "listen_address")
        if self.metrics_address:
            check_address(self.metrics_address, "metrics_address")
        check_receiver(self.metrics_endpoint, "metrics_endpoint")
        if self.namesrv_address:
            addresses_of(self.namesrv_address)
        for name, low, high in (
            ("lease_s", 0.1, 3600),
            ("expiry_interval_s", 0.01, 60),
            ("sync_interval_s", 0.01, 60),
            ("watchers_max", 1, 100_000),
            ("stop_grace_s", 0, 600),
            ("metrics_interval_s", 0.05, 3600),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise Invalid(f"{value}; expected {low} to {high}", field=name)
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise Invalid(f"{self.log_level!r}; expected debug, info, warning or error", field="log_level")


def load(
    environ: Mapping[str, str] = os.environ, *, file: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> settings.Loaded[Settings]:
    """Read and check the settings. Errors: Invalid, naming the setting."""
    loaded = settings.load(Settings, environ_prefix=ENVIRON_PREFIX, environ=environ, file=file, overrides=overrides)
    loaded.settings.check()
    return loaded
