"""A selection of Spark's tests for each version of Spark, in separate environments: `make spark-matrix`.

    python -m tests.spark.matrix [VERSION...]

An environment has its Spark and uses the other packages of this one. It is created once, in .tools.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

from tests.repo.tree import ROOT

VERSIONS: Final = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
"""The newest patch of each minor version."""
TESTS: Final = {
    "batches are read": (
        "4.0",
        "test_batch_read.py::test_every_column_of_every_message_is_as_it_was_sent",
        "test_batch_read.py::test_the_broker_sends_what_a_tag_or_a_condition_wants",
        "test_many_queries.py::test_many_queries_on_one_frame_give_what_a_plain_frame_gives[tags-1-20]",
        "test_versions.py::test_a_spark_that_is_too_old_is_told_which_one_can",
    ),
    "batches are written": ("4.1", "test_sink.py::test_every_column_becomes_what_it_says"),
    "a frame is a snapshot": ("4.1", "test_batch_read.py::test_a_dataframe_is_a_snapshot"),
    "MessagePack is decoded": ("4.1", "test_batch_read.py::test_bodies_of_other_formats_are_decoded_by_spark"),
    "streams are written": ("4.1", "test_versions.py::test_a_stream_of_another_source_is_written"),
    "streams are read": (
        "4.2",
        "test_queries.py::test_bytes_alone_limit_batches_and_the_group_reaches_the_end",
        "test_queries.py::test_a_stream_reads_what_the_broker_is_asked_for",
        "test_sink.py::test_a_sink_whose_checkpoint_was_deleted_is_refused",
    ),
}
"""Features by the first version that has them, with their tests; the page on shipping has the same table."""
RUN_S = 1_800


def can(version: str, first: str) -> bool:
    """Whether `version` is at least `first`, such as 4.1."""
    return [*map(int, version.split(".")[:2])] >= [*map(int, first.split("."))]


def environment(version: str) -> str:
    """The interpreter of an environment with that Spark, created if it does not exist."""
    folder = ROOT / f".tools/spark-{version}"
    python = str(folder / "bin/python")
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, timeout=RUN_S)
        found = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                               check=True, timeout=60, capture_output=True, text=True)  # fmt: skip
        packages = Path(found.stdout.strip())
        ours = sysconfig.get_path("purelib")
        (packages / "project.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"pyspark=={version}"]
        subprocess.run(command, check=True, timeout=RUN_S)
        (packages / "pyspark/python/lib/pyspark.zip").unlink(missing_ok=True)
        (folder / "ready").touch()
    return python


def passes(version: str) -> bool:
    """Whether its selection of tests passes with this version, and no test was skipped."""
    since = {what: tests for what, (first, *tests) in TESTS.items() if can(version, first)}
    tests = [str(ROOT / "tests/spark" / name) for names in since.values() for name in names]
    # Spark before 4.2 leaves sockets to the garbage collector, for which a test must not fail.
    ignored = () if can(version, "4.2") else ("-W", "ignore::pytest.PytestUnraisableExceptionWarning")
    done = subprocess.run(
        [environment(version), "-m", "pytest", "-q", "-p", "no:cacheprovider", *ignored, *tests],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=RUN_S,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-2_000:]
    lacking = [f"{what} since {TESTS[what][0]}" for what in TESTS if what not in since]
    sys.stdout.write(f"Spark {version}: {last}{'; NOT there: ' + ', '.join(lacking) if lacking else ''}\n")
    if ok := done.returncode == 0 and "skipped" not in last:
        return ok
    sys.stdout.write(done.stdout[-6_000:])
    return False


if __name__ == "__main__":
    failed = [version for version in sys.argv[1:] or VERSIONS if not passes(version)]
    sys.exit(f"failed under {', '.join(failed)}" if failed else 0)
