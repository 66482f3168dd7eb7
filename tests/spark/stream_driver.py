"""A Spark program of its own, to be killed: reads a cluster into Parquet, and multicasts rows of files through it.

python stream_driver.py CONFIG FOLDER DEADLINE
"""

import sys

from amcast.spark.session import open_session

SMALL = {"spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}


def main(config: str, folder: str, deadline: str) -> None:
    with open_session("driver", master="local[2,3]", settings=SMALL) as spark:
        files = spark.readStream.schema("dest array<string>, payload string").option("maxFilesPerTrigger", 1)
        writing = files.json(f"{folder}/in").writeStream.format("amcast").options(config=config, deadline=deadline)
        writing = writing.option("checkpointLocation", f"{folder}/writing").trigger(availableNow=True).start()
        logs = spark.readStream.format("amcast").options(config=config, deadline=deadline, rows_per_batch="700").load()
        reading = logs.writeStream.format("parquet").option("path", f"{folder}/out")
        reading = reading.option("checkpointLocation", f"{folder}/reading").trigger(availableNow=True).start()
        writing.awaitTermination()
        reading.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
