"""Protocols that use consensus as a black box: the competitors of White-Box."""
