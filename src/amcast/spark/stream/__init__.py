"""A running cluster in Spark: its ordered logs as a source, multicasts as a sink, and checks while it runs."""
