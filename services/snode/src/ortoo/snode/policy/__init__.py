"""Checks of requests before they are executed: users, permissions, limits and interceptors.

The gRPC services import the package. It uses only the fields of requests.
"""

from dataclasses import dataclass

import grpc

from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.policy.access import AccessControl, Authentication
from ortoo.snode.policy.audit import AuditLog
from ortoo.snode.policy.flow_control import FlowControl, parse_flow_rules
from ortoo.snode.policy.interceptors import InterceptorChain, load_interceptors
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.snode.policy.watched_file import WatchedFile


@dataclass(frozen=True, slots=True)
class Policy:
    """The checks before every call: access, flow control and interceptors."""

    flow_control: FlowControl
    flow_control_file: WatchedFile
    interceptors: InterceptorChain | None
    """The interceptors of the settings; None = none."""
    access: AccessControl | None
    """None = every client may do everything."""
    audit: AuditLog

    async def forwarding_channel(self, channel: grpc.aio.Channel) -> grpc.aio.Channel:
        """A channel to another snode that signs calls as the user of the current call. Errors: Unavailable."""
        return (
            channel
            if self.access is None
            else await self.access.authentication.forwarding_channel(PRINCIPAL.get(), channel)
        )


async def open_policy(runtime: Runtime, cluster: ClusterView) -> Policy:
    """Make the checks of the flow-control file and the access file. Errors: Invalid for a wrong access file."""
    settings, clock, metrics = runtime.settings, runtime.clock, runtime.metrics
    access: AccessControl | None = None
    audit = AuditLog(settings.name, clock)
    if settings.access_file:
        access = AccessControl(
            settings.access_file, Authentication(cluster.name_server, clock, settings), cluster.directory, audit
        )
        await access.file.load()
        access.register(metrics)
    flow = FlowControl(clock)
    flow.register(metrics)
    flow_file = WatchedFile(
        settings.flow_control_file, "limits on requests", lambda text: flow.replace(parse_flow_rules(text))
    )
    await flow_file.reload_if_changed()
    loaded = load_interceptors(settings.interceptors)
    return Policy(flow, flow_file, InterceptorChain(loaded) if loaded else None, access, audit)
