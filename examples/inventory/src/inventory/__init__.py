"""A replicated inventory: items live in several groups, and an order takes all that it names, or nothing."""
