"""Users, rights, limits and interceptors: takes requests and refuses some.

The gRPC services import it; it uses only the fields of requests.
"""

from dataclasses import dataclass

import grpc

from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.policy.access import Access, Authentication
from ortoo.snode.policy.interceptors import Chain, load_interceptors
from ortoo.snode.policy.flow_control import FlowControl, rules_of
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.snode.policy.watched_file import WatchedFile


@dataclass(frozen=True, slots=True)
class Policy:
    """The checks around every call."""

    flow: FlowControl
    flow_file: WatchedFile
    chain: Chain | None
    """The interceptors of the settings; None = none."""
    access: Access | None
    """None = every client may do everything."""

    async def onward(self, channel: grpc.aio.Channel) -> grpc.aio.Channel:
        """A channel to another snode for a call on behalf of this call's user. Errors: Unavailable."""
        return channel if self.access is None else await self.access.authentication.forwarding(PRINCIPAL.get(), channel)


async def open_policy(runtime: Runtime, cluster: Cluster) -> Policy:
    """Read the files of limits and of access. Errors: Invalid if that of access is missing or wrong."""
    settings, clock, metrics = runtime.settings, runtime.clock, runtime.metrics
    access: Access | None = None
    if settings.access_file:
        access = Access(settings.access_file, Authentication(cluster.name_server, clock, settings), cluster.directory)
        await access.file.begin()
        access.register(metrics)
    flow = FlowControl(clock)
    flow.register(metrics)
    flow_file = WatchedFile(settings.flow_control_file, "limits on requests", lambda text: flow.replace(rules_of(text)))
    await flow_file.look()
    loaded = load_interceptors(settings.interceptors)
    return Policy(flow, flow_file, Chain(loaded) if loaded else None, access)
