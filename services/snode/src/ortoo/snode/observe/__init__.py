"""What went through this snode: counts, spans and records of the trace topic.

In comes what other rooms did, out go metrics, traces and messages. It decides nothing; the rooms above
enodes may import it.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from ortoo.common.process.clock import Clock
from ortoo.common.telemetry.tracing import Tracing, open_tracing
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import Links
from ortoo.snode.observe.trace_topic import RecordedLinks, TraceTopic
from ortoo.snode.observe.traffic import PushTraces, TracedLinks, Traffic


@dataclass(frozen=True, slots=True)
class Observation:
    """Counts always; spans and records where the settings ask for them."""

    traffic: Traffic = field(default_factory=Traffic)
    tracing: Tracing | None = None
    trace_topic: TraceTopic | None = None

    def links(self, links: Links, directory: Directory, clock: Clock) -> Links:
        """Links to enodes over which nothing goes unseen."""
        if self.tracing is not None:
            links = TracedLinks(links, self.tracing)
        if self.trace_topic is not None:
            links = RecordedLinks(links, self.trace_topic, directory, clock)
        return links


@contextlib.asynccontextmanager
async def open_observation(runtime: Runtime, directory: Directory) -> AsyncIterator[Observation]:
    """Begin to count; spans are sent until the block is left. Errors: Invalid, Unsupported."""
    settings, clock, metrics = runtime.settings, runtime.clock, runtime.metrics
    async with open_tracing(
        "snode", settings.name, settings.trace_endpoint, clock=clock, randomness=runtime.randomness
    ) as tracing:
        traffic = Traffic(PushTraces(tracing) if tracing is not None else None)
        traffic.register(metrics, directory)
        trace_topic = TraceTopic(settings.trace_topic, settings.name, clock) if settings.trace_topic else None
        if trace_topic is not None:
            trace_topic.register(metrics)
        yield Observation(traffic, tracing, trace_topic)
