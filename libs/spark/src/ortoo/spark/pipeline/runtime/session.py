"""The Spark session of the jobs."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ortoo.common.errors import Unsupported
from ortoo.spark.pipeline.runtime.settings import SparkSettings, parse_pairs

_LOGGING = Path(__file__).with_name("log4j2.properties")


@contextmanager
def session(settings: SparkSettings) -> Iterator[Any]:
    """Yield the active Spark session, or else a new session, which is stopped at the end.

    Errors: Unsupported without Java, Invalid for an entry of `conf` without a value.
    """
    # By default workers run the first python3 in the path, which may lack pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # numpy would start a spinning thread for each core in each process that plans a query.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if (active := SparkSession.getActiveSession()) is not None:
        yield active
        return
    builder = SparkSession.builder.appName("ortoo-pipeline")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it repeats raised errors as JSON
    defaults = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_LOGGING}",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        # A driver that is killed while it writes the first offsets leaves a partial file, after which Spark would
        # refuse the checkpoint. Each job has its own checkpoint, so this check protects no other query.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    }
    defaults |= dict(parse_pairs(settings.conf, "spark.conf"))
    if settings.master:
        builder = builder.master(settings.master)
    for name, value in defaults.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise Unsupported(f"Spark does not start ({error}); install Java 17 or newer (JAVA_HOME)") from error
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
