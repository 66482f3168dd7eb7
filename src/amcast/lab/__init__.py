"""Experiments: a simulation from a description, the papers' claims, swarms of random faulty runs."""
