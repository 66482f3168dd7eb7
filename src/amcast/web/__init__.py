"""Traces and clusters as pictures: a local page, and files for other viewers."""
