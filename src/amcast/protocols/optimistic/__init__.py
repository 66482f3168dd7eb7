"""Baseline and Optimistic Atomic Multicast."""
