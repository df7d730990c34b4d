"""KEDA's ExternalScaler: decode, compute the lag of groups, encode."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from ortoo.common.errors import Invalid
from ortoo.common.grpc.errors import Context
from ortoo.common.process.clock import Clock
from ortoo.keda import externalscaler_pb2 as pb
from ortoo.keda.externalscaler_pb2_grpc import ExternalScalerServicer
from ortoo.snode.pull.lag import AGE, LAG, ConsumerLag, ScalerTrigger
from ortoo.snode.rpc.streams import LongCalls

NAME = pb.DESCRIPTOR.services_by_name["ExternalScaler"].full_name
POLL_INTERVAL_S = 2.0


@dataclass(eq=False)
class ExternalScaler(ExternalScalerServicer):
    """The service by which KEDA queries the lag of groups."""

    lag: ConsumerLag
    long_calls: LongCalls
    clock: Clock

    async def IsActive(self, request: pb.ScaledObjectRef, context: Context) -> pb.IsActiveResponse:
        """Whether KEDA must run at least one pod of the consumer."""
        return pb.IsActiveResponse(result=await self.lag.is_active(ScalerTrigger.from_metadata(request.scalerMetadata)))

    async def StreamIsActive(self, request: pb.ScaledObjectRef, context: Context) -> AsyncIterator[pb.IsActiveResponse]:
        """Send at once, and at every change, whether KEDA must run at least one pod of the consumer."""
        trigger, last_sent = ScalerTrigger.from_metadata(request.scalerMetadata), None
        with self.long_calls.track():
            while True:
                active = await self.lag.is_active(trigger)
                if active is not last_sent:
                    yield pb.IsActiveResponse(result=active)
                    last_sent = active
                await self.clock.sleep(POLL_INTERVAL_S)

    async def GetMetricSpec(self, request: pb.ScaledObjectRef, context: Context) -> pb.GetMetricSpecResponse:
        """The metrics of the consumer, each with its target value per replica."""
        targets = ScalerTrigger.from_metadata(request.scalerMetadata).targets
        return pb.GetMetricSpecResponse(
            metricSpecs=[pb.MetricSpec(metricName=name, targetSize=size) for name, size in targets.items()]
        )

    async def GetMetrics(self, request: pb.GetMetricsRequest, context: Context) -> pb.GetMetricsResponse:
        """The present value of a metric."""
        trigger, name = ScalerTrigger.from_metadata(request.scaledObjectRef.scalerMetadata), request.metricName
        if name not in (LAG, AGE):
            raise Invalid(f"{name!r}; expected {LAG} or {AGE}", field="metricName")
        read = self.lag.lag_messages if name == LAG else self.lag.oldest_age_s
        return pb.GetMetricsResponse(metricValues=[pb.MetricValue(metricName=name, metricValue=await read(trigger))])
