"""One node of a Maelstrom test: JSON lines in and out, the same protocol objects in between."""

from amcast.apps.maelstrom.node import MaelstromNode
from amcast.apps.maelstrom.serve import serve
from amcast.apps.maelstrom.workloads import WORKLOADS

__all__ = ["WORKLOADS", "MaelstromNode", "serve"]
