"""A protocol and an application for amcast, in a package of their own."""
