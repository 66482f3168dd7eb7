"""Numbers of a node for Prometheus. Plain integers while running; the text is made when asked for."""

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amcast.runtime.node import Node


class Metrics(Collector):
    def __init__(self, node: "Node") -> None:
        self._node = node
        self.messages_in = 0
        self.requests = 0
        self.deliveries = 0
        self.rejected = 0
        self.elections = 0
        self._registry = CollectorRegistry()
        self.commits = Histogram(
            "amcast_commit_seconds", "Time to make a batch of records durable", registry=self._registry,
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2),
        )  # fmt: skip
        self._registry.register(self)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> "Iterator[Metric]":
        node = self._node
        yield CounterMetricFamily("amcast_messages_received", "Messages from members", self.messages_in)
        yield CounterMetricFamily("amcast_requests", "Multicasts asked for by clients", self.requests)
        yield CounterMetricFamily("amcast_deliveries", "Messages delivered", self.deliveries)
        yield CounterMetricFamily("amcast_rejected", "Messages that the application rejected", self.rejected)
        yield CounterMetricFamily("amcast_elections_won", "Times that this replica became leader", self.elections)
        yield GaugeMetricFamily("amcast_position", "Messages in the ordered log of the group", node.history.end)
        yield GaugeMetricFamily("amcast_remembered", "Messages in memory", node.engine.process.footprint())
        yield GaugeMetricFamily("amcast_clients", "Connected clients", len(node.serving.sessions))
        if node.durability.space.free is not None:
            free, short = node.durability.space.free, node.durability.short_of_space() is not None
            yield GaugeMetricFamily("amcast_disk_free_bytes", "Room on the disk of this replica", free)
            yield GaugeMetricFamily("amcast_disk_short", "Whether clients are refused for lack of room", int(short))
        kept = GaugeMetricFamily("amcast_kept_bytes", "Bytes that a member has not acknowledged", labels=["peer"])
        connected = GaugeMetricFamily("amcast_connected", "Whether a member is connected", labels=["peer"])
        for link in node.links.values():
            kept.add_metric([link.peer.name], link.kept_bytes)
            connected.add_metric([link.peer.name], int(link.connection is not None))
        yield kept
        yield connected
