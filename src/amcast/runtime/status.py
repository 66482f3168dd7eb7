"""What people, commands and trials want to know of a node."""

import os
from typing import TYPE_CHECKING

from amcast.core.application import Speculator
from amcast.core.capabilities import Durable, Electing

if TYPE_CHECKING:
    from amcast.runtime.node import Node


def status_of(node: "Node") -> dict[str, object]:
    """Return it as JSON has it."""
    process = node.engine.process
    versions = node.versions.ours()
    return {
        "id": node.me.name,
        "cluster": node.config.name,
        "protocol": node.config.protocol,
        "pid": os.getpid(),
        "uptime": round((node.machine.clock.monotonic_ns() - node.started) / 1e9, 1),
        **process.condition(),  # for people; what programs decide by has names and types of its own, below
        "leads": isinstance(process, Electing) and process.leads(),
        "refuses": [reason for reason in node.pulses.refusals if reason],
        "busy": node.pulses.busy,
        "unready": node.readiness() or "",
        "pulling": node.pulls.doing,
        "rejoining": isinstance(process, Durable) and process.rejoining(),
        "position": node.history.end,
        "unfinished": not process.idle() or node.durability.unfinished,
        "remembered": process.footprint(),
        **node.membership.status(),
        "clients": len(node.serving.sessions),
        "peers": {link.peer.name: link.connection is not None for link in node.links.values()},
        "durable": node.config.durable,
        "app": {"name": node.config.app, "version": versions.active, "knows": versions.newest, "began": versions.began},
        "format": {"used": node.formats.used, "knows": [node.formats.knows.oldest, node.formats.knows.newest]},
        "disk": {"free": node.durability.space.free, "short": node.durability.short_of_space()},
        **({"rollbacks": node.app.rollbacks} if isinstance(node.app, Speculator) else {}),
    }
