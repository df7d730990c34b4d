"""The cost of sealing and opening a receipt handle, beside an HMAC that derives its key each time.

`python -m bench.handles [--json]` prints microseconds a handle: the least of several rounds. Each round measures all
steps one after another, so that other load on the machine affects them alike.
"""

import argparse
import hashlib
import hmac
import timeit
from collections.abc import Callable

from bench import report
from ortoo.common.groups.handle_seal import HandleKey, HandleKeys, HandleSeals
from ortoo.snode.pop.receipt_handle import ReceiptHandle, read_receipt

SECRET = bytes(range(32))
NOW_MS = 1_700_000_000_000


async def measure(arguments: argparse.Namespace) -> report.Figures:
    """Measure every step; nothing here awaits."""
    seals = HandleSeals(lambda: NOW_MS)
    seals.use_keys(HandleKeys((HandleKey(7, SECRET, 1),)))
    handle = ReceiptHandle("enode-0", "group", 1 << 62, 3, 1 << 40, 1 << 20, 32)
    text, purpose, data = handle.encoded(seals), b"ortoo receipt", bytes(70)
    steps: dict[str, Callable[[], object]] = {
        "make a handle": lambda: handle.encoded(seals),
        "read a handle": lambda: read_receipt(text, seals),
        "its seal": lambda: seals.seal(purpose, data),
        "an HMAC with a new key": lambda: hmac.digest(SECRET, purpose + data, hashlib.sha256),
    }
    best_us = dict.fromkeys(steps, float("inf"))
    for _ in range(arguments.rounds):
        for name, step in steps.items():
            best_us[name] = min(best_us[name], timeit.timeit(step, number=arguments.times) / arguments.times * 1e6)
    return {"us": {name: round(value, 2) for name, value in best_us.items()}}


if __name__ == "__main__":
    report.main("handles", "least of several rounds in one process", measure, rounds=30, times=1_000)
