"""The start-up time of an enode with a large store: after a clean stop, and after kill -9 during writes."""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from bench.processes import memory_mib
from bench.report import Figures, main, ratio
from bench.stores import QUEUES, TOPIC_ID, append_all, open_store, repeated_batches
from ortoo.cli.demo.role_subprocess import RoleSubprocess
from ortoo.common.grpc.channels import Channels
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.v1 import enode_pb2, enode_pb2_grpc, record_pb2

METHOD = (
    "a store is filled step by step. At each size the enode starts as a process after a clean stop. It is written to "
    "until its last segment is nearly full, killed, and started again. Seconds from spawning the process until it has"
    " answered a read of the last message of every queue"
)
SEGMENT_BYTES = 256 << 20
NEARLY_FULL = 0.85


async def measure(options: argparse.Namespace) -> Figures:
    """Both starts at each size."""
    sizes = [float(size) for size in options.sizes_gb.split(",")]
    starts = []
    make = repeated_batches(options.body_bytes, options.messages_per_batch)
    with tempfile.TemporaryDirectory(prefix="ortoo-bench-") as name:
        folder = Path(name)
        done = 0
        for size in sizes:
            batches = int(size * 1e9 / options.body_bytes / options.messages_per_batch)
            async with open_store(folder / "store") as store:
                await append_all(store, make, range(done, batches))
                ends = [row.end_offset for row in store.describe_queues(TOPIC_ID)]
            done = batches
            starts.append(await _starts(folder, ends, make(0)))
    return {
        "body_bytes": options.body_bytes,
        "messages_per_batch": options.messages_per_batch,
        "starts": starts,
        "clean_start_s": starts[-1]["clean_start_s"],
        "killed_start_s": starts[-1]["killed_start_s"],
        "baselines": {"the smallest store": starts[0]},
        "ratios": {
            f"{name} of the smallest store to the largest": ratio(starts[0][name], starts[-1][name])
            for name in ("clean_start_s", "killed_start_s")
        },
    }


async def _starts(folder: Path, ends: list[int], batch: SealedBatch) -> Figures:
    environ = {"DATA_DIR": str(folder / "store"), "NAMESRV_ADDRESS": "127.0.0.1:1", "STORE_RETENTION_AGE_MS": "0"}
    enode = RoleSubprocess("enode", environ, folder / "enode.log")
    try:
        clean_s = await _time_to_read(enode, ends)
        log_bytes, ends = await _write_on(enode, ends, batch)
        killed_s = await _time_to_read(enode, ends)
        memory = memory_mib(enode.process_id)
    finally:
        await enode.stop()
    return {
        "messages": sum(ends),
        "log_gb": round(log_bytes / 1e9, 2),
        "clean_start_s": round(clean_s, 2),
        "killed_start_s": round(killed_s, 2),
        "memory_mib": memory,
    }


async def _time_to_read(enode: RoleSubprocess, ends: list[int]) -> float:
    """Start the process; read each queue's last acknowledged message. Errors: AssertionError when one is missing."""
    started = time.perf_counter()
    await enode.start()
    async with Channels() as channels:
        call = enode_pb2_grpc.EnodeServiceStub(channels.channel_to(enode.address)).FetchBatches()
        for queue_id, end in enumerate(ends):
            await call.write(
                enode_pb2.FetchBatchesRequest(topic_id=TOPIC_ID, queue_id=queue_id, from_offset=end - 1, bytes_max=1)
            )
            answer = await call.read()
            assert isinstance(answer, enode_pb2.FetchBatchesResponse)
            assert answer.batches, answer
        call.cancel()
    return time.perf_counter() - started


async def _write_on(enode: RoleSubprocess, ends: list[int], batch: SealedBatch) -> tuple[int, list[int]]:
    """Append until the last segment is nearly full, kill during appends; the log's bytes, the acknowledged ends."""
    wire = record_pb2.SealedBatch(
        records=batch.records,
        records_crc32c=batch.records_crc32c,
        count=batch.count,
        body_inflated_bytes=batch.body_inflated_bytes,
    )
    acknowledged = list(ends)
    async with Channels() as channels:
        stub = enode_pb2_grpc.EnodeServiceStub(channels.channel_to(enode.address))
        call = stub.Append()
        window = asyncio.Semaphore(64)

        async def read() -> None:
            async for answer in call:
                queue_id = answer.request_id % QUEUES
                acknowledged[queue_id] = max(acknowledged[queue_id], answer.first_offset + batch.count)
                window.release()

        reading = asyncio.create_task(read())
        number = 0
        while True:
            for _ in range(200):
                await window.acquire()
                await call.write(
                    enode_pb2.AppendRequest(request_id=number, topic_id=TOPIC_ID, queue_id=number % QUEUES, batch=wire)
                )
                number += 1
            described = await stub.DescribeStore(enode_pb2.DescribeStoreRequest())
            if described.appended_position % SEGMENT_BYTES > NEARLY_FULL * SEGMENT_BYTES:
                break
        await enode.kill()
        reading.cancel()
        await asyncio.wait([reading])
    return described.log_bytes, acknowledged


if __name__ == "__main__":
    main("store_start", METHOD, measure, sizes_gb="1,3,10", body_bytes=1000, messages_per_batch=10)
