"""A Spark job that multicasts through a running cluster and reads back what every group delivered, in order.

To run it:
    python examples/write_and_read.py cluster/cluster.toml
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def main(config: str, count: int = 1000) -> None:
    spark = SparkSession.builder.appName("write and read").getOrCreate()
    cluster = {"config": config}

    # Every row becomes a multicast: an even number goes to both groups, an odd one to a single group.
    numbers = spark.range(count).repartition(2)
    to = F.when(F.col("id") % 2 == 0, F.array(F.lit("g0"), F.lit("g1"))).otherwise(F.array(F.lit("g1")))
    rows = numbers.select(to.alias("dest"), F.format_string("number %d", "id").alias("payload"))
    rows.write.format("amcast").options(**cluster).mode("append").save()

    # Each group's log, and all logs as one: every message once, in the total order.
    logs = spark.read.format("amcast").options(**cluster).load()
    mine = F.col("payload").cast("string").startswith("number ")
    logs.where(mine).groupBy("group").agg(F.count("*"), F.min("position"), F.max("position")).orderBy("group").show()
    merged = spark.read.format("amcast").options(**cluster, order="merged").load().where(mine)
    print("in order:", merged.select("group", "position", F.col("payload").cast("string")).take(5))

    # Whatever two groups share, they deliver in the same order.
    shared = logs.where(mine & (F.size("dest") == 2))
    orders = [
        [row.message for row in shared.where(F.col("group") == group).orderBy("position").collect()]
        for group in ("g0", "g1")
    ]
    print(f"{len(orders[0])} messages to both groups, in the same order: {orders[0] == orders[1]}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
