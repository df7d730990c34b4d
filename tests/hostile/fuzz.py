"""Fuzz the parsers of untrusted bytes and texts, guided by coverage: batches, handles, SQL, frames of HTTP/2.

python -m tests.hostile.fuzz TARGET --seconds 60

For any bytes, the answer must be a value or an OrtooError with the reason. Anything else is a finding: atheris ends the
process with it, and leaves the input in the working folder.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["ortoo"]):
    from ortoo.common.arrays.batch_check import check
    from ortoo.common.errors import OrtooError
    from ortoo.common.filters.message_filter import compile_filter
    from ortoo.common.groups.handle import HandleKind, read_handle
    from ortoo.common.groups.handle_seal import HandleSeals
    from ortoo.common.grpc.signature import check_time, read_signature
    from ortoo.common.records.batch import encode, open_batch
    from ortoo.common.records.message import Message
    from ortoo.common.records.sealed_batch import SealedBatch, crc32c
    from ortoo.snode.pop.receipt_handle import ReceiptHandle, read_receipt
    from tests.hostile.frames import PATHS, to_client, to_server
from tests.hostile.http2 import (
    DATA,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    headers,
    message,
    opening,
    request,
)

SEEDS_MAX_BYTES = 4_096
MESSAGES = [
    Message(b"body", keys=("key",), tag="tag", properties={"a": "1"}),
    Message(b"x" * 50, message_group="group", deliver_at_ms=1_800_000_000_000, priority=3),
]


def batch(data: bytes) -> None:
    """A batch with a correct checksum and any columns: checked as at a send, then read."""
    for count in (1, 2, len(data) % 7 + 1):
        sealed = SealedBatch(data, crc32c(data), count, len(data))
        with contextlib.suppress(OrtooError):
            list(open_batch(sealed))
        with contextlib.suppress(OrtooError):
            check(replace(sealed, delayed=bool(count % 2)))


def handle(data: bytes) -> None:
    """Handles of leases, delayed messages and transactions."""
    text = data.decode("latin-1")
    for seals in (HandleSeals(), None):
        with contextlib.suppress(OrtooError):
            read_receipt(text, seals)
        for kind in HandleKind:
            with contextlib.suppress(OrtooError):
                read_handle(text, kind, "handle", seals)


def signature(data: bytes) -> None:
    """Signatures of RocketMQ's clients."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(OrtooError):
        read_signature(text)
    for local in (False, True):
        with contextlib.suppress(OrtooError):
            check_time(text, 1_800_000_000_000, 60_000, local=local)


def sql(data: bytes) -> None:
    """Filters by SQL and by tags."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(OrtooError):
        compile_filter("", text)
    with contextlib.suppress(OrtooError):
        compile_filter(text, "")


LOOP = asyncio.new_event_loop()


def frames(data: bytes) -> None:
    """Frames of a client to a server of the transport h2."""
    LOOP.run_until_complete(to_server(PREFACE + data))


def answers(data: bytes) -> None:
    """Frames of a server to a client of the transport h2."""
    LOOP.run_until_complete(to_client(data))


TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "batch": (batch, [encode(MESSAGES[:1], now_ms=1).records, encode(MESSAGES[1:], now_ms=1).records]),
    "handle": (handle, [ReceiptHandle("enode-0", "g", 1, 0, 1, 0, 1).encoded(HandleSeals()).encode()]),
    "signature": (
        signature,
        [
            b"MQv2-HMAC-SHA1 Credential=key, SignedHeaders=x-mq-date-time, Signature=" + b"0A" * 20,
            b"20260101T000000Z",
        ],
    ),
    "frames": (
        frames,
        [
            frame(SETTINGS, 0, 0)
            + opening(at, headers(path, ("grpc-timeout", "1S")))
            + request(at, message(b"a") + message(b"b"))
            + frame(WINDOW_UPDATE, 0, at, b"\0\0\0\1")
            + frame(RST_STREAM, 0, at, b"\0\0\0\x08")
            for at, path in zip((1, 3, 5, 7), PATHS, strict=True)
        ],
    ),
    "answers": (
        answers,
        [
            frame(SETTINGS, 0, 0)
            + frame(HEADERS, 4, 1, b"\x88\x5f\x10application/grpc")
            + frame(DATA, 0, 1, message(b"answer"))
            + frame(HEADERS, 5, 1, b"\0\x0bgrpc-status\x010")
        ],
    ),
    "sql": (sql, [b"a > 1 AND NOT (b LIKE 'x%' ESCAPE '!') OR c IN ('1', '2') AND d IS NOT NULL", b"a || b"]),
}
"""Each target with its first inputs."""


def main() -> None:
    """Run one target for a time; the exit status is not 0 if there is a finding."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    chosen = parser.parse_args()
    run, seeds = TARGETS[chosen.target]
    folder = Path(tempfile.mkdtemp(prefix="ortoo-fuzz-"))
    for number, seed in enumerate(seeds):
        (folder / f"seed-{number}").write_bytes(seed)
    options = [f"-max_total_time={chosen.seconds}", f"-max_len={SEEDS_MAX_BYTES}", "-verbosity=0", "-timeout=5"]
    os.chdir(folder)
    atheris.Setup([sys.argv[0], *options, str(folder)], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
