"""An OTLP receiver in a process of its own that counts spans and keeps none: `python -m bench.baselines.span_sink`."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Sink(trace_service_pb2_grpc.TraceServiceServicer):
    """Counts the spans it receives."""

    def __init__(self) -> None:
        """Start with a count of zero."""
        self.spans = 0

    async def Export(  # noqa: N802  # gRPC's name
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: object
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        """Count the spans of one request."""
        self.spans += sum(len(scope.spans) for one in request.resource_spans for scope in one.scope_spans)
        return trace_service_pb2.ExportTraceServiceResponse()


@contextlib.asynccontextmanager
async def sink() -> AsyncIterator[str]:
    """Run a sink; yields its address."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.baselines.span_sink"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


async def _serve() -> None:
    server = grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Sink(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve())
