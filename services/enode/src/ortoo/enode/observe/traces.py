"""Where the enode adds spans to the traces of messages: from a batch's arrival until it is durable."""

from typing import Any

from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.telemetry.tracing import Tracing, sampled_contexts
from ortoo.enode.deferred.intake import Intake


def traced_intake(intake: Intake, tracing: Tracing, enode: str) -> Intake:
    """`intake`, with a span for each traced message it stores."""
    traced: Any = TracedIntake(intake, tracing, enode)
    found: Intake = traced
    return found


class TracedIntake:
    """An intake whose appends are spans; what it does not trace it passes on."""

    def __init__(self, intake: Intake, tracing: Tracing, enode: str) -> None:
        self._intake = intake
        self._tracing = tracing
        self._enode = enode

    def __getattr__(self, name: str) -> Any:
        return getattr(self._intake, name)

    async def append(self, topic_id: int, queue_id: int, batch: SealedBatch, **options: Any) -> Any:
        """Store one batch. Errors: as `Intake.append`."""
        contexts = sampled_contexts(batch.records)
        if not contexts:
            return await self._intake.append(topic_id, queue_id, batch, **options)
        attributes: dict[str, str | int] = {
            "ortoo.enode": self._enode,
            "ortoo.topic_id": str(topic_id),
            "ortoo.queue_id": queue_id,
        }
        spans = self._tracing.begin("ortoo store", contexts, attributes)
        try:
            stored = await self._intake.append(topic_id, queue_id, batch, **options)
        except BaseException as error:
            self._tracing.end(spans, error)
            raise
        self._tracing.end(spans)
        return stored
