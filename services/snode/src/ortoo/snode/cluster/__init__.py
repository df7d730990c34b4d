"""The directory as plain values, kept equal to the name servers' copy.

The package takes the name servers' answers and returns topics, groups, enodes and snodes. It calls only name servers.
Every package may import it.
"""

from dataclasses import dataclass

from ortoo.common.cluster.address_server import resolve_name_servers
from ortoo.common.errors.findings import ClusterIdentity
from ortoo.common.groups.handle_seal import HandleSeals
from ortoo.common.grpc.cluster_token import read_token
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.name_server import NameServerClient
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.watch import DirectoryWatch


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The snode's view of the cluster: its copy of the directory, the watch, and the name servers."""

    directory: DirectoryCache
    watch: DirectoryWatch
    name_server: NameServerClient

    def identity(self) -> ClusterIdentity:
        """The directory that this snode follows, and its name servers."""
        return ClusterIdentity(self.directory.directory_id, self.name_server.servers.addresses)


async def open_cluster(runtime: Runtime) -> ClusterView:
    """Make a view of the cluster, which `DirectoryWatch.run` then keeps up to date. Errors: Unavailable, Invalid."""
    clock, metrics, directory = runtime.clock, runtime.metrics, DirectoryCache(HandleSeals(runtime.clock.now_ms))
    address = runtime.settings.namesrv_address
    name_servers = await resolve_name_servers(address, background=runtime.background, clock=clock)
    admin_token = read_token(runtime.settings.admin_token_file, "admin_token_file")
    name_server = NameServerClient(name_servers, runtime.channels, runtime.clock, admin_token)
    metrics.gauge("rocketmq_proxy_up", "Always 1 while the snode runs.", lambda: 1)
    metrics.gauge(
        "ortoo_enode_alive",
        "1 while this snode considers an enode alive; 0 for another enode that has queues of topics.",
        lambda: {(enode.name,): int(enode.alive) for enode in directory.expected_enodes()},
        labels=("enode",),
    )
    metrics.gauge(
        "ortoo_directory_version", "The version of this snode's copy of the directory.", lambda: directory.version
    )
    watch = DirectoryWatch(directory, name_server, clock=clock, randomness=runtime.randomness)
    return ClusterView(directory, watch, name_server)
