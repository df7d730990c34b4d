"""Spans of sends, for a process whose application has set up OpenTelemetry."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ortoo.client.produce.producer_batch import SendFuture, SendFutures
from ortoo.common.records.message import Message, message_of

if TYPE_CHECKING:
    from ortoo.client.tracing.telemetry import SendSpan, Telemetry


@contextmanager
def sending(
    telemetry: "Telemetry | None", topic: str, operation: str = "send"
) -> Iterator[Callable[[Message | bytes], Message]]:
    """The span of a send that the block awaits; yields the function that gives a message the context of the span."""
    if telemetry is None:
        yield message_of
        return
    with telemetry.sending(topic, operation) as span:
        yield span.stamp


def enqueue_traced(
    telemetry: "Telemetry", topic: str, enqueue: Callable[[Message], SendFuture], message: Message | bytes
) -> SendFuture:
    """Enqueue a message with a span that ends with its outcome."""
    span = telemetry.start_send(topic)
    with _failing(span):
        future = enqueue(span.stamp(message))
    _end_with(span, [future])
    return future


@contextmanager
def sending_many(
    telemetry: "Telemetry | None", topic: str, messages: Iterable[Message | bytes]
) -> Iterator[tuple[Iterable[Message | bytes], Callable[[SendFutures], SendFutures]]]:
    """One span for all `messages`.

    Yields the messages with its context, and a function for their futures: the span ends with the last outcome.
    """
    if telemetry is None:
        yield messages, lambda futures: futures
        return
    span = telemetry.start_send(topic)

    def ending(futures: SendFutures) -> SendFutures:
        _end_with(span, futures.firsts())
        return futures

    with _failing(span):
        yield map(span.stamp, messages), ending


@contextmanager
def _failing(span: "SendSpan") -> Iterator[None]:
    """End the span if the block raises."""
    try:
        yield
    except BaseException as error:
        span.end(error)
        raise


def _end_with(span: "SendSpan", futures: Iterable[SendFuture]) -> None:
    """End the span when all batches of `futures` have their outcome, with the first failure."""
    batches = {future.batch: future for future in futures}
    failures: list[BaseException] = []

    def on_done(future: SendFuture) -> Callable[[Any], None]:
        def end(_: Any) -> None:
            failures.extend(filter(None, [future.failure]))
            batches.pop(future.batch)
            if not batches:
                span.end(failures[0] if failures else None)

        return end

    for batch, future in list(batches.items()):
        batch.future.add_done_callback(on_done(future))
    if not batches:
        span.end()
