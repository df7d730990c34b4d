"""Waiting until a process reports that it is ready, as a probe does."""

import asyncio
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc


async def until_ready(channel: Any, service: str = "") -> None:
    """Watch its health until it is SERVING; for an enode this is when a name server knows it."""
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))
    async with asyncio.timeout(60):
        while (await watch.read()).status != health_pb2.HealthCheckResponse.SERVING:
            pass
    watch.cancel()
