"""`amcast sim`: one run in virtual time, summarised and, if asked, recorded."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Option

from amcast.cli.naming import ProtocolName, protocol_named
from amcast.cli.output import complain, print_json, report_console
from amcast.errors import InvariantViolation, UsageError

MESSAGES = 1000  # where neither --messages nor --duration is given
SLOWEST, FASTEST = 1e-3, 1e9  # messages per second: at most one per tick of the virtual clock
NETWORKS = (
    "constant:1ms (default), uniform:1ms,9ms, exponential:0.5ms,0.15ms (base, mean of the tail), lan, "
    "wan (leaders at one site), wan-spread, oam-lan, oam-wan, allconcur-sdc or allconcur-mdc."
)
SETUP = (
    "An experiment of a paper: white-box-lan, white-box-wan, oam-lan, oam-wan, allconcur-sdc or allconcur-mdc. "
    "Other options change it."
)
SENDERS = "Members multicast instead of clients, and so many groups send to each."
ROUNDS = "The servers of a broadcast multicast instead of clients, so many messages each."
SINGLE = "Replicas per group, odd. Default: 3, or 1 where the protocol says so."

GROUPS = "Number of groups. Default: 3, or 1 where the protocol says so."


class TraceLevel(StrEnum):
    deliveries = "deliveries"
    full = "full"


def sim(
    protocol: ProtocolName,
    setup: Annotated[str | None, Option(metavar="NAME", help=SETUP)] = None,
    groups: Annotated[int | None, Option(help=GROUPS)] = None,
    replicas: Annotated[int | None, Option(help=SINGLE)] = None,
    clients: Annotated[int | None, Option(help="Number of clients. Default: 10.")] = None,
    messages: Annotated[int | None, Option(min=1, help="Multicasts of the whole run. Default: 1000.")] = None,
    duration: Annotated[str | None, Option(metavar="TIME", help="Or multicast for so long, such as 10s.")] = None,
    dest_groups: Annotated[int | None, Option(metavar="K", help="Groups a message goes to. Default: 2.")] = None,
    network: Annotated[str | None, Option(help=NETWORKS)] = None,
    crash: Annotated[list[str] | None, Option(metavar="WHO@TIME", help="Such as g0/0@50ms; repeatable.")] = None,
    rate: Annotated[float | None, Option(help="Open loop: messages per second. Default: closed loop.")] = None,
    skew: Annotated[str | None, Option(metavar="TIME", help="Clocks are off by up to so much.")] = None,
    senders_to: Annotated[int | None, Option(min=0, metavar="N", help=SENDERS)] = None,
    window: Annotated[str | None, Option(metavar="TIME", help="Wait window of optimistic. Default: estimated.")] = None,
    rounds: Annotated[int | None, Option(min=1, metavar="N", help=ROUNDS)] = None,
    payload: Annotated[int | None, Option(min=0, max=1 << 24, help="Bytes of a message. Default: 20.")] = None,
    batch: Annotated[int | None, Option(min=1, max=1 << 16, help="Or payloads in a message. Default: 1.")] = None,
    checked: Annotated[bool, Option("--checked", help="Assert the paper's invariants at run time.")] = False,
    seed: Annotated[int, Option(min=0, help="The same seed makes the same run.")] = 1,
    trace: Annotated[TraceLevel, Option(help="full: every send and receive too.")] = TraceLevel.deliveries,
    out: Annotated[Path | None, Option(metavar="DIR", help="Write the trace there. Default: no trace.")] = None,
    force: Annotated[bool, Option("--force", help="Replace an older trace in DIR.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Simulate a protocol in virtual time until all is delivered; print throughput, latency and recovery.

    Exit code 3 if the run stalls: something was not delivered, and never will be.
    """
    table = protocol_named(protocol)
    from amcast.cli.running import nothing_too_large, ready_world, run_world
    from amcast.cli.sim_report import command_line, print_report, run_document, too_many_crashes, unfinished
    from amcast.sim.network import nanoseconds
    from amcast.sim.setups import setup as setup_named
    from amcast.sim.simulation import Crash, Simulation
    from amcast.sim.summary import SummaryRecorder

    if messages is not None and duration is not None:
        raise UsageError("--messages and --duration exclude each other: expected one of them")
    if rate is not None and not SLOWEST <= rate <= FASTEST:
        raise UsageError(f"rate {rate}: expected messages per second, from {SLOWEST} to {FASTEST:.0f}")
    planned = setup_named(setup) if setup is not None else {}
    smallest = {"groups": 1 if table.single_group else 3, "replicas": 1 if table.single_replica else 3}
    fields = {**smallest, "clients": 10, "network": "constant:1ms", **planned}
    given = {
        "groups": groups, "replicas": replicas, "clients": clients, "network": network, "rate": rate,
        "senders_to": senders_to, "rounds": rounds, "payload": payload, "batch": batch,
        "skew": nanoseconds(skew) if skew is not None else None,
        "window": nanoseconds(window) if window is not None else None,
    }  # fmt: skip
    fields.update({name: value for name, value in given.items() if value is not None})
    count = fields.pop("messages", None if fields.get("rounds") else MESSAGES)
    with nothing_too_large():
        simulation = Simulation(
            protocol,
            **fields,
            messages=messages if messages is not None or duration is not None else count,
            duration=nanoseconds(duration) if duration is not None else None,
            dest_groups=dest_groups,
            crashes=tuple(Crash.parse(text) for text in crash or ()),
            seed=seed,
            checked=checked,
        )
    recorder = SummaryRecorder(full=trace is TraceLevel.full and out is not None)
    world = ready_world(simulation, recorder)
    for warning in too_many_crashes(simulation):
        complain(warning)
    try:
        run = run_world(world, simulation, recorder, out, force)
    except InvariantViolation as violation:
        raise InvariantViolation(f"{violation}; replay with: {command_line(simulation)}") from violation
    for line in unfinished(run, out):
        complain(line)
    if as_json:
        print_json(run_document(simulation, run, out))
    else:
        print_report(report_console(), simulation, run, out)
    return run.exit_code
