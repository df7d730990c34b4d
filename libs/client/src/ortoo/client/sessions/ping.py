"""Asks a snode whether it serves."""

from grpc_health.v1 import health_pb2, health_pb2_grpc

from ortoo.client.core.connection import Connection
from ortoo.common.errors import Unavailable


async def ping(connection: Connection, timeout_s: float) -> float:
    """Wait until a snode serves; returns the seconds that its answer took. Errors: Unavailable after `timeout_s`."""
    clock = connection.clock
    deadline_s = clock.monotonic_s() + timeout_s
    attempt = 0
    while True:
        address, begun_s = connection.address, clock.monotonic_s()
        answer = await connection.call(
            health_pb2_grpc.HealthStub,
            "Check",
            health_pb2.HealthCheckRequest(),
            timeout_s=max(0.001, deadline_s - begun_s),
            deadline_s=deadline_s,
        )
        if answer.status == health_pb2.HealthCheckResponse.SERVING:
            return clock.monotonic_s() - begun_s
        if clock.monotonic_s() >= deadline_s:
            raise Unavailable(
                f"{address} does not serve, because it is starting or stopping; try again", retry_after_ms=500
            )
        connection.mark_failed(address)
        await connection.back_off(attempt)
        attempt += 1
