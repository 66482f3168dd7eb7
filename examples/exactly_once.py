"""A Spark job that copies what a cluster delivers to Parquet: each delivery once, however often the job is stopped.

To run it, and again when more was multicast:
    python examples/exactly_once.py orders/cluster.toml copied
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def main(config: str, folder: str) -> None:
    spark = SparkSession.builder.appName("exactly once").getOrCreate()
    deliveries = spark.readStream.format("amcast").option("config", config).option("start", "earliest").load()
    query = (
        deliveries.select("group", "position", "message", F.col("payload").cast("string"))
        .writeStream.format("parquet")
        .option("path", f"{folder}/log")
        .option("checkpointLocation", f"{folder}/checkpoint")  # where it goes on when it is started again
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    copied = spark.read.parquet(f"{folder}/log")
    groups = copied.groupBy("group").agg(F.count("*").alias("rows"), F.max("position").alias("last")).orderBy("group")
    for row in groups.collect():
        once = "each once, none missing" if row.rows == row.last + 1 else "WRONG"
        print(f"{row.group}: {row.rows} deliveries, positions 0 to {row.last}: {once}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
