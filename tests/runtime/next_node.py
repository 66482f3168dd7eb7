"""A node of a release that there is not yet, as a process: CLUSTER ID, and what `amcast node` takes besides."""

import sys

from amcast.apps import application
from amcast.cli import run
from amcast.protocols import protocol
from amcast.runtime.log import Log
from amcast.runtime.node import Node, serve
from amcast.service import load
from amcast.swarm.cluster.next_release import NEXT, next_release


def run_node(cluster: str, name: str, **options: object) -> None:
    config = load(cluster)
    row = next_release(protocol(config.protocol))
    serve(Node(config, name, row, application(config.app).machine, log=Log(name), new=bool(options["new"]), knows=NEXT))


if __name__ == "__main__":
    import amcast.service

    amcast.service.run_node = run_node  # type: ignore[assignment]
    sys.exit(run(["node", *sys.argv[1:]]))
