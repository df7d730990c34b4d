"""The queue front with an echo behind it: the cost of a call that does no work."""

import asyncio
from typing import Any

import grpc

from ortoo.common.grpc.completion_queue.core import CompletionQueue, QueueCall
from ortoo.common.grpc.server import OPTIONS
from ortoo.common.process.clock import SystemClock

METHOD = "/bench.Echo/Call"


def echoed(call: QueueCall) -> None:
    call.answer(call.message, 0, "", ())


async def serve() -> None:
    server: Any = grpc.aio.server(options=list(OPTIONS))
    core = CompletionQueue.of_server(server, SystemClock())
    assert core is not None
    core.register(METHOD, echoed)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    core.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve())
