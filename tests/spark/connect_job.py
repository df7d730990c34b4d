"""A client of Spark Connect: reads a topic, filters it, and copies it into another as a batch and as a stream.

python -m tests.spark.connect_job ADDRESS SOURCE TARGET FOLDER

Prints its results as one line of JSON. `remote("local[2]")` starts the server that it connects to.
"""

import json
import os
import sys

from pyspark.sql import SparkSession

import ortoo.spark
from ortoo.spark.format import bodies

if __name__ == "__main__":
    address, source, target, folder = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    ortoo.spark.register(spark)
    options = {"address": address, "subscribe": source}
    frame = spark.read.format("ortoo").options(**options).load()
    value = frame.withColumn("value", bodies.json("n bigint"))
    seen = {
        "session": type(spark).__module__,
        "rows": frame.count(),
        "sum": value.agg({"value.n": "sum"}).collect()[0][0],
        "tagged": spark.read.format("ortoo").options(**options, tags="rare").load().count(),
    }
    sink = {"address": address, "topic": target, "deliverySemantics": "exactly-once"}
    frame.select("body", "born_at").write.format("ortoo").options(**sink, jobId="copy").mode("append").save()
    stream = spark.readStream.format("ortoo").options(**options, startingOffsets="earliest", maxOffsetsPerTrigger=300)
    query = stream.load().select("body", "born_at").writeStream.format("ortoo").options(**sink)
    query = query.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    sys.stdout.write(json.dumps(seen) + "\n")
    spark.stop()
