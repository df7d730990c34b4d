"""Metrics, spans and trace topic of the traffic through this snode.

The package observes the operations of other packages, and returns metrics, traces and messages. The packages above
`enodes` may import it.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ortoo.common.telemetry.tracing import Tracing, open_tracing
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.snode.enodes.link import LinkFactory
from ortoo.snode.observe.trace_topic import RecordedLink, TraceTopic
from ortoo.snode.observe.traffic import PushTraces, TracedLink, Traffic


@dataclass(frozen=True, slots=True)
class Observation:
    """The observation of a snode's traffic: metrics, and spans and trace records if they are enabled."""

    traffic: Traffic
    tracing: Tracing | None
    trace_topic: TraceTopic | None

    def wrap_links(self, link_factory: LinkFactory) -> LinkFactory:
        """Wrap a factory of links, so that requests over its links are traced and recorded."""
        if self.tracing is not None:
            link_factory = _wrap(link_factory, partial(TracedLink, self.tracing))
        if self.trace_topic is not None:
            link_factory = _wrap(link_factory, partial(RecordedLink, self.trace_topic))
        return link_factory


def _wrap(link_factory: LinkFactory, wrapper: Callable[[str, GrpcEnodeLink], Any]) -> LinkFactory:
    """Wrap each link in an observer."""
    return lambda enode, address, epoch: wrapper(enode, link_factory(enode, address, epoch))


@contextlib.asynccontextmanager
async def open_observation(runtime: Runtime, directory: DirectoryCache) -> AsyncIterator[Observation]:
    """Start the observation; spans are exported until the end of the block. Errors: Invalid, Unsupported."""
    settings, clock, metrics = runtime.settings, runtime.clock, runtime.metrics
    async with open_tracing(
        "snode", settings.name, settings.trace_endpoint, clock=clock, randomness=runtime.randomness
    ) as tracing:
        traffic = Traffic(PushTraces(tracing) if tracing is not None else None)
        traffic.register(metrics, directory)
        trace_topic = None
        if settings.trace_topic:
            trace_topic = TraceTopic(settings.trace_topic, settings.name, directory, clock)
            trace_topic.register(metrics)
        yield Observation(traffic, tracing, trace_topic)
