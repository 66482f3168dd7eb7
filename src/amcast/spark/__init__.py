"""The data pipeline on Spark: sweeps of simulations, verification, metrics, figures.

Nothing here starts a JVM at import: `session.open_session` does, and pyspark is imported inside the functions that need
it, so that a command that does not use Spark does not pay for it.
"""
