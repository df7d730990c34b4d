"""What may be chosen about a name server, by file, environment (`ORTOO_NAMESRV_...`) and command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ortoo.common.cluster.addresses import is_loopback
from ortoo.common.cluster.name_servers import addresses_of
from ortoo.common.cluster.service_settings import InnerSettings
from ortoo.common.process.settings import Range

DAY_MS = 86_400_000
IMPORTANT = ("name", "listen_address", "namesrv_address", "data_dir", "database_url")


@dataclass(frozen=True)
class Settings(InnerSettings):
    """The settings of one name server."""

    ENVIRON_PREFIX = "ORTOO_NAMESRV_"
    LIVE = ("log_level", "topic_deletion_grace_ms", "group_deletion_grace_ms", "watchers_max")

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
    lease_s: Annotated[float, Range(0.1, 3_600)] = 15.0
    """How long a process counts as alive after it announced itself."""
    member_lease_s: Annotated[float, Range(1, 3_600)] = 3.0
    """How long a member of an enode counts as there after it reported; they report once a second."""
    expiry_interval_s: Annotated[float, Range(0.01, 60)] = 1.0
    """How often leases are looked at."""
    sync_interval_s: Annotated[float, Range(0.01, 60)] = 0.25
    """How often changes by other name servers over the same database are looked for."""
    topic_deletion_grace_ms: Annotated[int, Range(0, 365 * DAY_MS)] = DAY_MS
    """How long a deleted topic can come back; enodes drop its messages afterwards. 0 = they do so at once."""
    group_deletion_grace_ms: Annotated[int, Range(0, 365 * DAY_MS)] = DAY_MS
    """How long a deleted group can come back; enodes drop its offsets afterwards, unless it is used. 0 = at once."""
    admin_token_file: str = ""
    """A file with a token that calls about users must carry, as do those of snodes with the same file. Empty = none."""
    insecure: bool = False
    """Whether users are kept although other machines reach this name server, and it has neither `cluster_token_file`,
    nor mutual TLS, nor `admin_token_file`: every caller can read their secrets. Set it where the network keeps clients
    away."""
    secrets_key_file: str = ""
    """A file with the key that secrets in the database are encrypted by, 32 bytes in base64. Empty = they are in the
    clear."""
    secrets_key_files_previous: str = ""
    """Files with keys that secrets may be encrypted by as well, separated by `;`; a start encrypts them anew."""
    handle_key_interval_ms: Annotated[int, Range(3_600_000, 366 * DAY_MS)] = 30 * DAY_MS
    """How long receipt handles, recall handles and transaction ids are sealed with the same key."""
    unsigned_handles_grace_ms: Annotated[int, Range(0, 366 * DAY_MS)] = DAY_MS
    """How long those are good after an upgrade that are from before handles were sealed. 0 = not at all."""
    watchers_max: Annotated[int, Range(1, 100_000)] = 1_000
    """How many processes may follow the routes at once."""

    @property
    def keeps_secrets_open(self) -> bool:
        """Whether every caller could read the secrets of users, and no operator has accepted it."""
        is_closed = self.closes_inner_ports or self.admin_token_file or is_loopback(self.listen_address)
        return not (is_closed or self.insecure)

    def check(self) -> None:
        """Refuse settings that cannot work. Errors: Invalid, naming the field."""
        super().check()
        if self.namesrv_address:
            addresses_of(self.namesrv_address)


load = Settings.load
