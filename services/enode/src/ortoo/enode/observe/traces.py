"""Where the enode adds spans to the traces of messages: from a batch's arrival until it is durable."""

from dataclasses import dataclass
from typing import Any

from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.telemetry.tracing import Tracing, sampled_contexts
from ortoo.enode.deferred.intake import Intake
from ortoo.enode.store.store import FlushMode


def traced_intake(intake: Intake, tracing: Tracing, enode: str) -> Intake:
    """`intake`, with a span for each traced message it stores."""
    traced: Any = TracedIntake(intake, tracing, enode)
    found: Intake = traced
    return found


@dataclass(frozen=True, slots=True)
class TracedIntake:
    """An intake whose appends are spans; what it does not trace it passes on."""

    intake: Intake
    tracing: Tracing
    enode: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.intake, name)

    def begin(self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode) -> Any:
        """As `Intake.begin`; None, too, for what is traced: `append` sees when it ends."""
        return None if sampled_contexts(batch.records) else self.intake.begin(topic_id, queue_id, batch, flush_mode)

    async def append(self, topic_id: int, queue_id: int, batch: SealedBatch, **options: Any) -> Any:
        """Store one batch. Errors: as `Intake.append`."""
        contexts = sampled_contexts(batch.records)
        if not contexts:
            return await self.intake.append(topic_id, queue_id, batch, **options)
        attributes: dict[str, str | int] = {
            "ortoo.enode": self.enode,
            "ortoo.topic_id": str(topic_id),
            "ortoo.queue_id": queue_id,
        }
        spans = self.tracing.begin("ortoo store", contexts, attributes)
        try:
            stored = await self.intake.append(topic_id, queue_id, batch, **options)
        except BaseException as error:
            self.tracing.end(spans, error)
            raise
        self.tracing.end(spans)
        return stored
