r"""A report by Spark about the messages of a topic: revenue by shop and hour, as CSV.

    pip install 'ortoo[spark]'
    for n in $(seq 1 200); do echo "{\"shop\": \"shop-$((n % 3))\", \"cents\": $((n * 70))}"; done | ortoo send sales -
    python spark_report.py sales report

Spark needs Java 17 or newer. Spark finds the format `ortoo` because the package is installed. The frame is a snapshot
of the topic. For a report about a part of the topic, see the options `startingTimestamp` and `sql`.
"""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from ortoo.spark.format import bodies


def main(topic: str, folder: str) -> None:
    """Read the topic, and write the report into `folder`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sales = (
        spark.read.format("ortoo")
        .option("address", os.environ.get("ORTOO_ADDRESS", "localhost:8081"))
        .option("subscribe", topic)
        .option("columns", "body,stored_at")
        .load()
        .withColumn("sale", bodies.json("shop string, cents bigint"))
    )
    report = (
        sales.groupBy("sale.shop", f.date_trunc("hour", "stored_at").alias("hour"))
        .agg(f.count("*").alias("sales"), (f.sum("sale.cents") / 100).alias("revenue"))
        .orderBy("shop", "hour")
    )
    report.show()
    report.coalesce(1).write.mode("overwrite").option("header", True).csv(folder)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
