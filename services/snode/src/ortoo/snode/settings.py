"""Settings of a snode, by file, environment (`ORTOO_SNODE_...`) and command line."""

import enum
from dataclasses import dataclass
from typing import Annotated

from ortoo.common.cluster.address_server import check_name_servers
from ortoo.common.cluster.addresses import check_address, check_advertised, check_receiver
from ortoo.common.cluster.names import check_process_name, check_topic_name
from ortoo.common.cluster.service_settings import ServiceSettings
from ortoo.common.errors import Invalid
from ortoo.common.process.settings import NumberRange

IMPORTANT = ("name", "listen_address", "advertised_address", "namesrv_address")


def worker_name(snode: str, number: int) -> str:
    """The name in the cluster of the worker `number` of a snode; the numbers begin with 1."""
    return f"{snode}.{number}"


class ReadFrom(enum.StrEnum):
    """The replica of an enode from which committed messages are read."""

    LEADER = "leader"
    FOLLOWERS = "followers"


@dataclass(frozen=True)
class SnodeSettings(ServiceSettings):
    """The settings of one snode."""

    ENVIRON_PREFIX = "ORTOO_SNODE_"
    LIVE = (
        *("log_level", "session_expiry_s"),
        *("auto_create_topics", "auto_create_queue_count", "auto_create_groups"),
    )
    RELOADED = ("namesrv_address",)

    name: str = "snode-0"
    """The snode's name in the cluster."""
    listen_address: str = "127.0.0.1:8081"
    """host:port to serve clients on; port 0 takes any free port."""
    advertised_address: str = ""
    """host:port where clients reach this snode. Empty = the listen address."""
    workers: Annotated[int, NumberRange(1, 64)] = 1
    """Number of processes that serve the snode's ports, each on a core of its own. Several need a `redis_url`, as
    several snodes do (docs/operations/processes.md)."""
    worker_port: Annotated[int, NumberRange(0, 65_535)] = 0
    """Port on which other processes of the cluster reach the first of several workers. The second has the next port,
    and so on. 0 = free ports. With tls_cluster_listen_address the workers' ports begin there instead."""
    rocketmq_advertised_address: str = ""
    """host:port that RocketMQ's clients receive in routes. Empty = the address by which the client reached this
    snode."""
    tls_listen_address: str = ""
    """host:port of a second port with the same services over TLS. Empty = none."""
    tls_certificate_file: str = ""
    """The server's certificate with intermediate certificates, PEM. Empty = a self-signed certificate, made at the
    start for development. RocketMQ's clients accept it, other clients do not."""
    tls_key_file: str = ""
    """The private key of the certificate in tls_certificate_file, PEM."""
    tls_client_ca_file: str = ""
    """The roots of clients' certificates, PEM. TLS clients must then show a certificate. Empty = clients need
    no certificate."""
    tls_required: bool = False
    """Whether plaintext calls are refused. Both ports still answer health checks and reflection."""
    rocketmq_signatures_required: bool = False
    """Whether RocketMQ's clients must sign their requests, as users stored by the name server."""
    namesrv_address: str = "127.0.0.1:8071"
    """host:port of each name server of the cluster, separated by `;`, or the http:// URL of such a list."""
    read_from: ReadFrom = ReadFrom.LEADER
    """The replicas of an enode that serve ranges of a queue (`fetch`, Spark): its `leader` or its `followers`.
    Followers have the same messages at the same offsets. The leader serves the messages that a follower lacks."""
    enode_timeout_ms: Annotated[int, NumberRange(10, 600_000)] = 3_000
    """Timeout of a request to an enode."""
    enode_in_flight_bytes: Annotated[int, NumberRange(8 << 20, 16 << 30)] = 64 << 20
    """Maximum number of bytes in flight to one enode. Above it senders are throttled."""
    heartbeat_interval_s: Annotated[float, NumberRange(0.05, 3_600)] = 5.0
    """Interval between announcements of the snode at the name servers."""
    connection_age_max_s: Annotated[float, NumberRange(0, 604_800)] = 1800.0
    """Age at which a client's connection ends gracefully, give or take a tenth. Long streams end at 1.15 to 1.35 times
    this age. Clients connect again without a failed call, so that added snodes get load. 0 = no limit."""
    session_expiry_s: Annotated[float, NumberRange(0.1, 86_400)] = 120.0
    """Time without a message from the client after which its push session ends."""
    redis_url: str = ""
    """The Redis in which snodes share the membership of groups: redis://HOST:6379/0. With Sentinel:
    redis+sentinel://HOST:26379,HOST:26379/0?service=NAME. A Redis Cluster: redis+cluster://HOST:6379,HOST:6379. For
    TLS, write rediss in place of redis. Empty = this is the only snode."""
    redis_prefix: str = "ortoo"
    """Prefix of the key names in Redis. Clusters that share a server need different prefixes."""
    membership_timeout_s: Annotated[float, NumberRange(0.2, 600)] = 4.0
    """Time after which the group members of a silent snode are removed from the shared membership."""
    auto_create_groups: bool = True
    """Whether a missing group is created when a consumer names it."""
    auto_create_topics: bool = False
    """Whether a missing topic is created when a producer names it. RocketMQ's consumers count as producers here."""
    auto_create_queue_count: Annotated[int, NumberRange(1, 1_024)] = 4
    """Number of queues on each enode of a topic that is created automatically."""
    access_file: str = ""
    """A file with users' permissions, read again when it changes (docs/operations/access.md). Empty = every client may
    do everything."""
    insecure: bool = False
    """Whether the snode starts with an `access_file` although clients could bypass it. Without `cluster_token_file` and
    mutual TLS, name servers and enodes answer every caller. Set it only if the network keeps clients away."""
    scaler_open: bool = False
    """Whether KEDA's interface answers every caller in spite of an `access_file`. Otherwise KEDA must call from a
    trusted address."""
    admin_token_file: str = ""
    """A file with the token that name servers require for calls about users. Name servers need the same
    file. Empty = no token."""
    signature_window_s: Annotated[float, NumberRange(1, 86_400)] = 300.0
    """Maximum difference between the time of a signature and this process's clock."""
    signature_local_times: bool = True
    """Whether RocketMQ's clients may sign the local time of any zone as UTC, as those in Java, Python and Go do. Set
    false if all of them run in UTC. A signature is then valid only for `signature_window_s`."""
    signed_requests_required: bool = False
    """Whether signatures must cover method and request, as those of our own client do. RocketMQ's clients
    cannot sign in this way."""
    flow_control_file: str = ""
    """A file with limits on requests, read again when it changes (docs/operations/consumers.md). Empty = no limits."""
    interceptors: str = ""
    """Interceptors that run around every call: `module:attribute`, separated by `;`."""
    sweep_interval_s: Annotated[float, NumberRange(0.01, 60)] = 1.0
    """Interval between checks for silent and slow sessions."""
    trace_endpoint: str = ""
    """http://host:port of an OTLP/gRPC receiver of spans of messages with a sampled trace context. Empty = none."""
    trace_topic: str = ""
    """A topic that gets a record of every batch that is sent, and of every acknowledgement, through this snode. A
    missing topic is created. Empty = none."""

    def check(self) -> None:
        """Refuse invalid settings. Errors: Invalid, naming the field."""
        super().check()
        check_name_servers(self.namesrv_address)
        check_receiver(self.trace_endpoint, "trace_endpoint")
        check_advertised(self.advertised_address)
        if self.tls_listen_address:
            check_address(self.tls_listen_address, "tls_listen_address")
            is_tls_configured = bool(
                self.tls_certificate_file or self.tls_key_file or self.tls_client_ca_file or self.tls_required
            )
            for name in ("tls_certificate_file", "tls_key_file"):
                if is_tls_configured and not getattr(self, name):
                    raise Invalid(
                        "is missing, and TLS requires it; give a PEM file, or leave tls_listen_address empty",
                        field=name,
                    )
        elif self.tls_required:
            raise Invalid("TLS is required but no port serves it; give tls_listen_address too", field="tls_required")
        if self.workers > 1:
            if not self.redis_url:
                raise Invalid(
                    "is missing, and several workers share their groups through Redis; give its URL, or workers = 1",
                    field="redis_url",
                )
            check_process_name(worker_name(self.name, self.workers), "name")
            if self.worker_port + self.workers > 65_536:
                raise Invalid(
                    f"{self.worker_port}; fewer than {self.workers} ports remain from this port up to 65535",
                    field="worker_port",
                )
        if self.access_file and not (self.closes_inner_ports or self.insecure):
            raise Invalid(
                "access_file has no effect: name servers and enodes answer every caller. Give all "
                "roles one cluster_token_file or mutual TLS (tls_cluster_listen_address), or set insecure = true if "
                "the network keeps clients away from them",
                field="insecure",
            )
        if self.trace_topic:
            check_topic_name(self.trace_topic, "trace_topic")
        check_advertised(self.rocketmq_advertised_address, field="rocketmq_advertised_address")


load = SnodeSettings.load
