"""What may be chosen about an enode, by file, environment (`ORTOO_ENODE_...`) and command line."""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ortoo.common import settings
from ortoo.common.errors import Invalid
from ortoo.common.names import check_process_name
from ortoo.enode.name_servers import NameServers
from ortoo.enode.store_settings import StoreSettings

ENVIRON_PREFIX = "ORTOO_ENODE_"
IMPORTANT = (
    "name",
    "cluster",
    "listen_address",
    "advertised_address",
    "namesrv_address",
    "data_dir",
    "store.flush_mode",
)


@dataclass(frozen=True)
class Settings:
    """The settings of one enode."""

    name: str = "enode-0"
    """Its name in the cluster; the store keeps it, so it must not change."""
    cluster: str = "default"
    """The cluster's name; a store made for another cluster is refused."""
    listen_address: str = "127.0.0.1:8091"
    """host:port to serve on; port 0 takes any free one."""
    advertised_address: str = ""
    """host:port where snodes reach this enode. Empty = the listen address."""
    namesrv_address: str = "127.0.0.1:8071"
    """host:port of the name server, several of one cluster separated by `;`."""
    data_dir: Path = Path("ortoo-data/enode")
    """Folder of the store."""
    heartbeat_interval_s: float = 5.0
    """How often the enode announces itself."""
    health_interval_s: float = 0.5
    """How often health is taken from the store."""
    stop_grace_s: float = 5.0
    """How long running calls may go on after a stop was asked for."""
    log_level: str = "info"
    """debug, info, warning or error."""
    store: StoreSettings = field(default_factory=StoreSettings)
    """The storage engine."""

    @property
    def store_settings(self) -> StoreSettings:
        """Those of the storage engine, which also knows whose store it is."""
        return dataclasses.replace(self.store, enode=self.name, cluster=self.cluster)

    def check(self) -> None:
        """Refuse settings that cannot work. Errors: Invalid, naming the field."""
        check_process_name(self.name, "name")
        check_process_name(self.cluster, "cluster")
        NameServers(self.namesrv_address)
        for name in ("listen_address", "advertised_address"):
            _check_address(name, getattr(self, name))
        if self.advertised_address.endswith(":0"):
            raise Invalid("port 0 cannot be reached; give the real one", field="advertised_address")
        if not self.advertised_address and self.listen_address.startswith(("0.0.0.0:", "[::]:")):
            raise Invalid(
                f"listening on {self.listen_address}, but snodes need an address to reach this enode; give host:port",
                field="advertised_address",
            )
        for name in ("heartbeat_interval_s", "health_interval_s"):
            if getattr(self, name) <= 0:
                raise Invalid(f"{getattr(self, name)}; expected more than 0", field=name)
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise Invalid(f"{self.log_level!r}; expected debug, info, warning or error", field="log_level")
        self.store_settings.check()


def load(
    environ: Mapping[str, str] = os.environ, *, file: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> settings.Loaded[Settings]:
    """Read and check the settings. Errors: Invalid, naming the setting."""
    loaded = settings.load(Settings, environ_prefix=ENVIRON_PREFIX, environ=environ, file=file, overrides=overrides)
    for name in ("store.enode", "store.cluster"):
        if loaded.origins[name] != "default":
            short = "name" if name == "store.enode" else "cluster"
            raise Invalid(f"is taken from {short}; set {short} instead", field=name)
    loaded.settings.check()
    return loaded


def _check_address(name: str, address: str) -> None:
    host, colon, port = address.rpartition(":")
    if address and not (host and colon and port.isdigit() and int(port) < 65536):
        raise Invalid(f"{address!r}; expected host:port", field=name)
    if not address and name == "listen_address":
        raise Invalid("expected host:port", field=name)
