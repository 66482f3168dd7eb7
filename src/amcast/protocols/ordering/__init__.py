"""Fifo and causal multicast to open groups."""
