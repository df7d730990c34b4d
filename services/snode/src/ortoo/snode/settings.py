"""What may be chosen about a snode, by file, environment (`ORTOO_SNODE_...`) and command line."""

import enum
from dataclasses import dataclass
from typing import Annotated

from ortoo.common.cluster.address_server import check_name_servers
from ortoo.common.cluster.addresses import check_address, check_advertised, check_receiver
from ortoo.common.cluster.names import check_process_name, check_topic_name
from ortoo.common.cluster.service_settings import ServiceSettings
from ortoo.common.errors import Invalid
from ortoo.common.process.settings import Range

IMPORTANT = ("name", "listen_address", "advertised_address", "namesrv_address")


def worker_name(snode: str, number: int) -> str:
    """What one of several workers of a snode is called in the cluster; the first is number 1."""
    return f"{snode}.{number}"


class ReadFrom(enum.StrEnum):
    """Which member of an enode gives what is committed."""

    LEADER = "leader"
    FOLLOWERS = "followers"


@dataclass(frozen=True)
class Settings(ServiceSettings):
    """The settings of one snode."""

    ENVIRON_PREFIX = "ORTOO_SNODE_"
    LIVE = (
        *("log_level", "namesrv_address", "session_expiry_s"),
        *("auto_create_topics", "auto_create_queue_count", "auto_create_groups"),
    )

    name: str = "snode-0"
    """Its name in the cluster."""
    listen_address: str = "127.0.0.1:8081"
    """host:port to serve clients on; port 0 takes any free one."""
    advertised_address: str = ""
    """host:port where clients reach this snode. Empty = the listen address."""
    workers: Annotated[int, Range(1, 64)] = 1
    """How many processes serve its ports, each on a core of its own; more than one need a `redis_url`, as several
    snodes do (docs/operations/processes.md)."""
    worker_port: Annotated[int, Range(0, 65_535)] = 0
    """Where other processes of the cluster reach the first of several workers by itself; the second has the next port,
    and so on. 0 = any free ones. With tls_cluster_listen_address the workers' ports begin there instead."""
    rocketmq_advertised_address: str = ""
    """host:port that RocketMQ's clients are told. Empty = each is told the address by which it reached this snode."""
    tls_listen_address: str = ""
    """host:port of a second port, on which the same is served by TLS; empty = none."""
    tls_certificate_file: str = ""
    """The server's certificate with those between it and the root, PEM. Empty = one is made at the start, for
    development: RocketMQ's clients take it, and nobody else believes it."""
    tls_key_file: str = ""
    """The certificate's private key, PEM."""
    tls_client_ca_file: str = ""
    """The roots of clients' certificates, PEM: who comes by TLS must show one. Empty = nobody needs one."""
    tls_required: bool = False
    """Whether calls in the clear are refused; health checks and reflection are answered on both ports all the same."""
    rocketmq_signatures_required: bool = False
    """Whether RocketMQ's clients must sign their requests, as users that the name server knows."""
    namesrv_address: str = "127.0.0.1:8071"
    """host:port of the name server, several of one cluster separated by `;`; or the http:// URL of such a list."""
    read_from: ReadFrom = ReadFrom.LEADER
    """Who gives ranges of a queue (`fetch`, Spark) where an enode has several members: its leader, or its `followers`,
    which have the same at the same offsets. What one of them lacks the leader gives."""
    enode_timeout_ms: Annotated[int, Range(10, 600_000)] = 3_000
    """How long an enode may take to answer; then the request fails."""
    enode_in_flight_bytes: Annotated[int, Range(8 << 20, 16 << 30)] = 64 << 20
    """How many bytes may be on their way to one enode; beyond it senders are told to slow down."""
    heartbeat_interval_s: Annotated[float, Range(0.05, 3_600)] = 5.0
    """How often the snode announces itself."""
    session_expiry_s: Annotated[float, Range(0.1, 86_400)] = 120.0
    """How long a push session may be silent."""
    redis_url: str = ""
    """Where snodes share the membership of groups, redis://HOST:6379/0. Empty = this is the only snode."""
    redis_prefix: str = "ortoo"
    """What the names of keys there begin with; clusters that share a server need one each."""
    membership_timeout_s: Annotated[float, Range(0.2, 600)] = 4.0
    """How long a snode may be silent in the shared membership before its members count as gone."""
    auto_create_groups: bool = True
    """Whether a group that a consumer names and that does not exist is created."""
    auto_create_topics: bool = False
    """Whether a topic that a producer names and that does not exist is created."""
    auto_create_queue_count: Annotated[int, Range(1, 1_024)] = 4
    """How many queues such a topic gets on each enode."""
    access_file: str = ""
    """A file with what users may do, read again when it changes (docs/operations/access.md). Empty = everybody may
    everything."""
    insecure: bool = False
    """Whether the snode starts with an `access_file` although clients may pass it: without `cluster_token_file` and
    mutual TLS, name servers and enodes answer every caller. Set it where the network keeps clients away from them."""
    scaler_open: bool = False
    """Whether KEDA's interface is answered to whoever asks although there is an `access_file`. Otherwise KEDA must come
    from a trusted address."""
    admin_token_file: str = ""
    """A file with a token that name servers want with calls about users; theirs is the same. Empty = none."""
    signature_window_s: Annotated[float, Range(1, 86_400)] = 300.0
    """How far the time of a signature may be from this process's clock."""
    signature_local_times: bool = True
    """Whether RocketMQ's clients may sign by the local time of any zone and call it UTC, as those in Java, Python and
    Go do. False where all of them run in UTC: then a signature is good for `signature_window_s` alone."""
    signed_requests_required: bool = False
    """Whether signatures must cover method and request, as those of our own client do. RocketMQ's clients make none."""
    flow_control_file: str = ""
    """A file with limits on requests, read again when it changes (docs/operations/consumers.md). Empty = no limits."""
    interceptors: str = ""
    """What else is called around every call: `module:attribute`, several separated by `;`."""
    sweep_interval_s: Annotated[float, Range(0.01, 60)] = 1.0
    """How often silent and slow sessions are looked for."""
    trace_endpoint: str = ""
    """http://host:port of an OTLP/gRPC receiver of spans of messages with a sampled trace context. Empty = none."""
    trace_topic: str = ""
    """A topic that gets a record of every batch that is sent and acknowledged through this snode; it is created when
    it does not exist. Empty = none."""

    def check(self) -> None:
        """Refuse settings that cannot work. Errors: Invalid, naming the field."""
        super().check()
        check_name_servers(self.namesrv_address)
        check_receiver(self.trace_endpoint, "trace_endpoint")
        check_advertised(self.advertised_address)
        if self.tls_listen_address:
            check_address(self.tls_listen_address, "tls_listen_address")
            given = bool(self.tls_certificate_file or self.tls_key_file or self.tls_client_ca_file or self.tls_required)
            for name in ("tls_certificate_file", "tls_key_file"):
                if given and not getattr(self, name):
                    raise Invalid("TLS needs it; give a PEM file, or leave tls_listen_address empty", field=name)
        elif self.tls_required:
            raise Invalid("TLS is required and spoken nowhere; give tls_listen_address too", field="tls_required")
        if self.workers > 1:
            if not self.redis_url:
                raise Invalid(
                    "several workers share their groups through Redis; give one, or workers = 1", field="redis_url"
                )
            check_process_name(worker_name(self.name, self.workers), "name")
            if self.worker_port + self.workers > 65_536:
                raise Invalid(
                    f"{self.worker_port}; there are no {self.workers} ports from there on", field="worker_port"
                )
        if self.access_file and not (self.closes_inner_ports or self.insecure):
            raise Invalid(
                "access_file is given, and name servers and enodes answer every caller, whatever its rights: give all "
                "roles one cluster_token_file or mutual TLS (tls_cluster_listen_address), or set insecure = true where "
                "the network keeps clients away from them",
                field="insecure",
            )
        if self.trace_topic:
            check_topic_name(self.trace_topic, "trace_topic")
        check_advertised(self.rocketmq_advertised_address, field="rocketmq_advertised_address")


load = Settings.load
