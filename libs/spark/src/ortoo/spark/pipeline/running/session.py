"""The Spark session that jobs run in."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ortoo.common.errors import Unsupported
from ortoo.spark.pipeline.running.settings import SparkSettings, pairs

_LOGGING = Path(__file__).with_name("log4j2.properties")


@contextmanager
def session(settings: SparkSettings) -> Iterator[Any]:
    """The session that is active here, left as it is; otherwise a new one, stopped at the end.

    Errors: Unsupported without Java, Invalid for a setting that is no pair.
    """
    # Workers run the first python3 on the path unless they are told otherwise, and that one may lack pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if (active := SparkSession.getActiveSession()) is not None:
        yield active
        return
    builder = SparkSession.builder.appName("ortoo-pipeline")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # repeats in JSON what is raised anyway
    defaults = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_LOGGING}",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        # A driver that is killed amid the very first offsets leaves a half file, for which Spark would refuse its own
        # checkpoint from then on. Each job has a checkpoint of its own, so there is no other query to guard it from.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    }
    defaults |= dict(pairs(settings.conf, "spark.conf"))
    if settings.master:
        builder = builder.master(settings.master)
    for name, value in defaults.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise Unsupported(f"Spark does not start: {error}; is Java 17 or newer installed (JAVA_HOME)?") from error
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
