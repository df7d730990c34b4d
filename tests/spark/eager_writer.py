"""A write task whose rows arrive as fast as the sink takes them.

python -m tests.spark.eager_writer ADDRESS TOPIC MIB

Prints `taken` for each MiB that the sink took, and finally the number of stored messages and its memory growth (MiB).
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType

from ortoo.spark.writing.message_writer import MessageWriter
from ortoo.spark.writing.write_options import parse

ROWS_A_MIB = 1_024


def rows(mib: int) -> Iterator[Any]:
    """`mib` MiB of rows, 1 KiB each."""
    for _ in range(mib):
        bodies = pa.array([b"x" * 1_024] * ROWS_A_MIB, pa.binary())
        yield pa.RecordBatch.from_arrays([bodies], names=["body"])
        say("taken")


def memory_mib(name: str) -> int:
    """A memory figure of this process in MiB: VmRSS is the current value, VmHWM the peak."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) // 1_024


def say(line: str) -> None:
    """Print a line for the parent process."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(address: str, topic: str, mib: int) -> None:
    """Write the rows and report."""
    task = TaskContext._getOrCreate()
    task._partitionId, task._localProperties = 0, {}
    options = parse({"address": address, "topic": topic}, StructType([StructField("body", BinaryType())]))
    began_mib = memory_mib("VmRSS")
    written = MessageWriter(options, "job").write(rows(mib))
    say(f"stored {written.messages} {memory_mib('VmHWM') - began_mib}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
