"""Virtual time: the same protocol objects, run deterministically with faults, from one source of choices."""
