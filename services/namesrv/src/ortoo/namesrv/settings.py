"""The settings of a name server, from a file, the environment (`ORTOO_NAMESRV_...`) and the command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ortoo.common.cluster.addresses import is_loopback
from ortoo.common.cluster.name_servers import addresses_of
from ortoo.common.cluster.service_settings import InnerSettings
from ortoo.common.process.settings import FormerName, NumberRange

DAY_MS = 86_400_000
IMPORTANT = ("name", "listen_address", "namesrv_address", "data_dir", "database_url")


@dataclass(frozen=True)
class NamesrvSettings(InnerSettings):
    """The settings of one name server."""

    ENVIRON_PREFIX = "ORTOO_NAMESRV_"
    LIVE = ("log_level", "topic_deletion_grace_ms", "group_deletion_grace_ms", "watchers_max")

    name: str = "namesrv-0"
    """The name server's name in logs."""
    listen_address: str = "127.0.0.1:8071"
    """host:port to listen on; port 0 selects a free port."""
    namesrv_address: str = ""
    """All name servers of one database, including this one: host:port, separated by `;`. Empty = it is the only one."""
    data_dir: Path = Path("ortoo-data/namesrv")
    """Folder of the database file, if there is no `database_url`."""
    database_url: str = ""
    """SQLAlchemy URL of the database. Empty = an SQLite file `namesrv.db` in `data_dir`."""
    lease_s: Annotated[float, NumberRange(0.1, 3_600)] = 15.0
    """The time for which a process counts as alive after its registration."""
    replica_lease_s: Annotated[float, NumberRange(1, 3_600), FormerName("member_lease_s")] = 3.0
    """The time for which an enode's replica counts as alive after a report. Replicas report at least twice a second."""
    expiry_interval_s: Annotated[float, NumberRange(0.01, 60)] = 1.0
    """The interval of the check for expired leases."""
    sync_interval_s: Annotated[float, NumberRange(0.01, 60)] = 0.25
    """The interval of the check for changes by other name servers of the same database."""
    topic_deletion_grace_ms: Annotated[int, NumberRange(0, 365 * DAY_MS)] = DAY_MS
    """How long a deleted topic can be restored; then enodes delete its messages. 0 = at once."""
    group_deletion_grace_ms: Annotated[int, NumberRange(0, 365 * DAY_MS)] = DAY_MS
    """How long a deleted group can be restored; then enodes delete its offsets, unless the group was used since.
    0 = at once."""
    admin_token_file: str = ""
    """A file with a token that is required in calls about users. Snodes need the same file. Empty = no token."""
    insecure: bool = False
    """Whether a name server that other machines reach stores users without authentication of its callers. It needs
    this setting if it has no `cluster_token_file`, no mutual TLS and no `admin_token_file`. Every caller can then read
    the secrets of users. Set it only if the network keeps clients away."""
    secrets_key_file: str = ""
    """A file with the key that encrypts secrets in the database, 32 bytes in base64. Empty = secrets are stored in
    plain text."""
    secrets_key_files_previous: str = ""
    """Files with earlier keys, separated by `;`. Secrets encrypted with them are encrypted again at the next start."""
    handle_key_interval_ms: Annotated[int, NumberRange(3_600_000, 366 * DAY_MS)] = 30 * DAY_MS
    """How long one key seals new receipt handles, recall handles and transaction ids."""
    unsigned_handles_grace_ms: Annotated[int, NumberRange(0, 366 * DAY_MS)] = DAY_MS
    """How long handles without a seal remain valid after an upgrade. 0 = they are refused."""
    watchers_max: Annotated[int, NumberRange(1, 100_000)] = 1_000
    """The maximum number of processes that watch the routes at once."""

    @property
    def keeps_secrets_open(self) -> bool:
        """Whether every caller could read the secrets of users although the setting `insecure` is off."""
        is_closed = self.closes_inner_ports or self.admin_token_file or is_loopback(self.listen_address)
        return not (is_closed or self.insecure)

    def check(self) -> None:
        """Refuse invalid settings. Errors: Invalid, naming the field."""
        super().check()
        if self.namesrv_address:
            addresses_of(self.namesrv_address)


load = NamesrvSettings.load
