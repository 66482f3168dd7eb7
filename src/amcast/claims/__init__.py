"""What the papers state in numbers: each claim is a scenario that is run, measured and compared."""
