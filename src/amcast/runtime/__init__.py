"""The same protocol objects on real machines: processes, sockets, disk."""
