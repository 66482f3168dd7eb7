"""Spark looks for data sources in packages of this name: so `format("amcast")` needs no registration."""

from amcast.spark.stream.source import AmcastSource as DefaultSource

__all__ = ["DefaultSource"]
