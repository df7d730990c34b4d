"""A separate process that sends health checks to another one repeatedly, and reports each latency.

    python -m tests.hostile.prober 127.0.0.1:8081

It writes a line of JSON to standard output for each check: its time in milliseconds, and the error, if any.
"""

import json
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ortoo.common.process.clock import SystemClock

TIMEOUT_S = 10.0


def main() -> None:
    """Send checks until standard output is closed."""
    clock = SystemClock()
    with grpc.insecure_channel(sys.argv[1]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            began_s, error = clock.monotonic_s(), ""
            try:
                stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
            except grpc.RpcError as failed:
                error = f"{failed.code().name}: {failed.details()}"
            took_ms = (clock.monotonic_s() - began_s) * 1000
            sys.stdout.write(json.dumps({"took_ms": took_ms, "error": error}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
