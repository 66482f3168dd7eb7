"""The data pipeline on Spark: sweeps of simulations, verification, metrics, streams.

Nothing here starts a JVM at import; `session.open_session` does.
"""
