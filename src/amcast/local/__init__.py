"""A cluster on this machine: its files, its processes, its trace, and trials of it."""
