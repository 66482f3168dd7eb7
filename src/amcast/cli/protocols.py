"""`amcast protocols`: what there is to choose from."""

from typing import Annotated

import typer

from amcast.cli.output import complain_of_plugins, plain_table, print_json, report_console

WIDE = 140  # where nobody's window is too narrow, a line per protocol


def protocols(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """List the protocols: the order they give, what they tolerate, their latency in message delays, who may restart."""
    from amcast.protocols import PROTOCOLS

    if as_json:
        names = ("name", "title", "order", "tolerates", "latency", "durable", "joins")
        print_json({"protocols": [{name: getattr(p, name) for name in names} for p in PROTOCOLS.values()]})
        return complain_of_plugins(PROTOCOLS.broken)
    table = plain_table("name", "order", "tolerates", "leader / follower", "restart")
    for p in PROTOCOLS.values():
        restart = "from disk" if p.durable else "crash-stop, others join" if p.joins else "crash-stop"
        table.add_row(p.name, p.order, p.tolerates, p.latency, restart)
    console = report_console()
    if not console.is_terminal:
        console.width = WIDE
    console.print(table)
    return complain_of_plugins(PROTOCOLS.broken)
