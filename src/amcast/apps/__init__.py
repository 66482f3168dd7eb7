"""Applications on top of replicated groups: deterministic state machines, and what speaks to them."""
