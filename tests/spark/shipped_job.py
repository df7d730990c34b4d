"""A job for a cluster whose workers have nothing installed: counts a topic and prints the origin of the package.

spark-submit --archives env.tar.gz#environment shipped_job.py ADDRESS TOPIC
"""

import sys

from pyspark.sql import SparkSession


def where(rows: object) -> list[tuple[str, str]]:
    """On an executor: its id and the location of the package."""
    from pyspark import SparkFiles

    import ortoo.spark

    del rows
    return [(SparkFiles.getRootDirectory(), str(ortoo.spark.__file__))]


if __name__ == "__main__":
    import ortoo.spark

    spark = SparkSession.builder.getOrCreate()
    ortoo.spark.register(spark)
    address, topic = sys.argv[1:]
    frame = spark.read.format("ortoo").option("address", address).option("subscribe", topic)
    sys.stdout.write(f"rows {frame.option('minPartitions', 4).load().count()}\n")
    for folder, file in spark.sparkContext.parallelize(range(8), 8).mapPartitions(where).distinct().collect():
        sys.stdout.write(f"package {folder} {file}\n")
    spark.stop()
