"""`amcast spark-archive`: make Spark start faster."""

from amcast.cli.output import progress_bar


def spark_archive() -> int:
    """Keep the classes of Spark in an archive (160 MB), so that later commands start it in half the CPU time.

    It is for the Java and pyspark that are here now: make it again after an update of either.
    """
    from amcast.spark.archive import make_archive

    with progress_bar() as bar:
        bar.add_task("starting Spark, and writing what it loaded: about a minute", total=None)
        archive = make_archive()
    print(f"{archive}: {archive.stat().st_size / 1e6:,.0f} MB; later commands on this machine use it")
    return 0
