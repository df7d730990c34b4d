"""Who calls and what they may: users, rights, limits, interceptors. Requests in, refusals out.

The doors import it; it knows requests by their fields alone.
"""

from dataclasses import dataclass

import grpc

from ortoo.snode.cluster import Cluster
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.policy.access import Access, Authentication
from ortoo.snode.policy.chain import Chain, load_interceptors
from ortoo.snode.policy.flow_control import FlowControl, rules_of
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.snode.policy.watched_file import WatchedFile


@dataclass(frozen=True, slots=True)
class Policy:
    """What is done around every call."""

    flow: FlowControl
    flow_file: WatchedFile
    chain: Chain | None
    """What the settings name to be called around every call; None = nothing."""
    access: Access | None
    """None = everybody may everything."""

    async def onward(self, channel: grpc.aio.Channel) -> grpc.aio.Channel:
        """A channel over which a call goes on to another snode as its caller's. Errors: Unavailable."""
        return channel if self.access is None else await self.access.authentication.forwarding(PRINCIPAL.get(), channel)


async def open_policy(runtime: Runtime, cluster: Cluster) -> Policy:
    """Read the files of limits and of access. Errors: Invalid, when that of access is missing or wrong."""
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
