"""`amcast cluster`: make a cluster on this machine, run it, look at it, break it."""

import os
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from amcast.cli import naming
from amcast.cli.naming import Cluster, ReplicaId, apps_like, cluster_at, protocol_named, protocols_like, replicas_like
from amcast.cli.output import complain, plain_table, print_json, report_console
from amcast.core.plural import count
from amcast.errors import UsageError

if TYPE_CHECKING:
    from amcast.core.protocol import Protocol
    from amcast.local.membership import Changing
    from amcast.local.processes import Processes
    from amcast.runtime.config import Address, Member

cluster_commands = typer.Typer(
    help="A cluster of real processes on this machine: init, up, status, verify, logs, kill, restart, …, down.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Timeout = Annotated[float, Option(min=0, help="Seconds to wait until nodes serve.")]
Wait = Annotated[bool, Option("--wait/--no-wait", help="Wait until nodes serve.")]
FOLLOW_EVERY = 0.2  # seconds


def processes_of(cluster: Path) -> "Processes":
    from amcast.local.processes import Processes

    return Processes(cluster_at(cluster))


def refuse_unfit(processes: "Processes", *members: "Member") -> None:
    """Raise UsageError if these replicas could not run: before any is started or, for a restart, stopped."""
    from amcast.apps import application
    from amcast.local.files import refuse_other_data

    application(processes.config.app)
    refuse_other_data(processes.config, members)


@cluster_commands.command()
def init(
    folder: Annotated[Path, Argument(metavar="DIR", help="A folder without a cluster.", parser=naming.folder_named)],
    groups: Annotated[int, Option(min=1, max=1000, help="Number of groups.")] = 3,
    replicas: Annotated[int, Option(min=1, max=99, help="Replicas per group, odd.")] = 3,
    protocol: Annotated[
        str,
        Option(
            help="See 'amcast protocols'. Default: white_box; for a ledger in one group allconcur_plus_ea.",
            autocompletion=protocols_like,
        ),
    ] = "",
    app: Annotated[
        str, Option(help="What nodes run: kv, bank, ledger, log, package.module:Class …", autocompletion=apps_like)
    ] = "kv",
    insecure_dev: Annotated[bool, Option("--insecure-dev", help="Plaintext instead of TLS.")] = False,
    memory_only: Annotated[bool, Option("--memory-only", help="No disk: a replica that stops is lost.")] = False,
    spare: Annotated[int, Option(min=0, max=99, help="So many more replicas per group, which may join later.")] = 0,
    base_port: Annotated[
        int | None, Option(min=1, max=65535, help="First port. Default: any that are free; 4100 with --hosts.")
    ] = None,
    hosts: Annotated[
        str, Option(metavar="A,B,…", help="For other machines: writes a bundle for each, with the keys it needs.")
    ] = "",
) -> int:
    """Write a cluster's configuration, certificates and data folders."""
    from amcast.apps import LEDGER, application
    from amcast.core.application import made, version_of
    from amcast.local.files import create_cluster

    found = application(app)
    rounds = found is LEDGER and groups == 1  # a ledger has no leader, and bears wrong suspicions
    table = protocol_named(protocol or ("allconcur_plus_ea" if rounds else "white_box"))
    # What cannot run is said before anything is written.
    version = version_of(made(found.machine, found.name, 0, groups)) if found.machine is not None else 1
    secure, durable = not insecure_dev, not memory_only
    if hosts:
        if not secure:
            raise UsageError("--insecure-dev is for loopback only: leave it out, or --hosts")
        return init_bundles(folder, table, groups, replicas, app, durable, hosts, base_port, spare)
    config = create_cluster(
        folder, table, groups, replicas, app, secure, durable, base_port, spare, app_version=version
    )
    security = "plaintext, loopback only" if insecure_dev else f"mutual TLS, certificates in {folder / 'certs'}"
    more = f" and {spare} to join" if spare else ""
    print(f"{config.path}: {config.name}, {count(groups, 'group')} of {count(replicas, 'replica')}{more}, {security}")
    print(f"start it with: amcast cluster up {folder}")
    return 0


def init_bundles(
    folder: Path,
    table: "Protocol",
    groups: int,
    replicas: int,
    app: str,
    durable: bool,
    hosts: str,
    base_port: int | None,
    spare: int,
) -> int:
    """Write what each of these machines needs, and say how to start it there."""
    from amcast.local.bundles import BASE_PORT, CLIENTS, create_bundles

    machines = [host.strip() for host in hosts.split(",")]
    made = create_bundles(folder, table, groups, replicas, app, durable, machines, base_port or BASE_PORT, spare)
    for host, members in made.items():
        print(f"{folder / 'bundles' / host}: {', '.join(members)}")
    print(f"{folder / 'bundles' / CLIENTS}: for programs, with the certificate of a client that may do everything")
    print(f"copy each to its machine, and keep {folder / 'certs' / 'ca.key'} here; the first start there, of each ID:")
    print("amcast node cluster.toml ID --new")
    return 0


@cluster_commands.command()
def up(cluster: Cluster, wait: Wait = True, timeout: Timeout = 60.0) -> int:
    """Start every node that does not run, and wait until all serve."""
    processes = processes_of(cluster)
    config = processes.config
    members = tuple(m for m in config.members if not config.is_spare(m) or processes.running(m) is not None)
    refuse_unfit(processes, *members)
    with processes.alone():
        for member in members:
            if processes.running(member) is None:
                processes.start(member)
    return show_started(processes, members, cluster, wait, timeout)


Seconds = Annotated[float, Option("--timeout", min=0, help="Seconds to wait until it is done.")]
As = Annotated[str | None, Option("--as", metavar="NAME", help="The client to be. Default: one with operate = true.")]
At = Annotated[
    str | None,
    Option("--address", metavar="HOST:PORT", help="Where it listens: three ports from here on. Default: free ones."),
]


def changing(processes: "Processes", group: str, client: str | None, seconds: float) -> "Changing":
    from amcast.local.membership import Changing

    config = processes.config
    number = group.removeprefix("g")
    if not number.isdigit() or int(number) not in config.groups:
        last = config.groups[-1]
        raise UsageError(f"there is no group {group!r}; expected a replica of one of g0 to g{last}")
    protocol = protocol_named(config.protocol)
    return Changing(processes, protocol, int(number), client, seconds, lambda line: print(line, flush=True))


def seat_in(name: str) -> int:
    seat = name.partition("/")[2]
    if not seat.isdigit():
        raise UsageError(f"{name!r} is no replica; expected a group and a number, such as g0/3")
    return int(seat)


def address_in(text: str | None) -> "Address | None":
    from amcast.runtime import config

    return config.address_in("--address", text) if text is not None else None


@cluster_commands.command()
def add(cluster: Cluster, name: ReplicaId, address: At = None, as_: As = None, timeout: Seconds = 120.0) -> int:
    """Let a new replica on this machine become a member of its group, while the cluster runs."""
    from amcast.local import membership

    processes = processes_of(cluster)
    change = changing(processes, name.partition("/")[0], as_, timeout)
    with processes.alone(f"change-{name.partition('/')[0]}"):
        membership.add(change, seat_in(name), address_in(address))
    return 0


@cluster_commands.command()
def remove(cluster: Cluster, name: ReplicaId, as_: As = None, timeout: Seconds = 120.0) -> int:
    """Let a member go while the cluster runs, or undo that a replica is to become one. Its data stays."""
    from amcast.local import membership

    processes = processes_of(cluster)
    change = changing(processes, name.partition("/")[0], as_, timeout)
    with processes.alone(f"change-{name.partition('/')[0]}"):
        membership.remove(change, name)
    return 0


@cluster_commands.command()
def replace(cluster: Cluster, name: ReplicaId, address: At = None, as_: As = None, timeout: Seconds = 120.0) -> int:
    """Let a new replica on this machine take the place of a member that is up, down or lost."""
    from amcast.local import membership

    processes = processes_of(cluster)
    change = changing(processes, name.partition("/")[0], as_, timeout)
    with processes.alone(f"change-{name.partition('/')[0]}"):
        membership.replace(change, name, address_in(address))
    return 0


@cluster_commands.command("add-group")
def add_group(
    cluster: Cluster,
    name: Annotated[str, Argument(metavar="GROUP", help="The number that comes next, such as g3.")],
    address: Annotated[
        list[str] | None,
        Option(metavar="HOST:PORT", help="Where a replica listens: three ports from here on. Default: three replicas."),
    ] = None,
    undo: Annotated[bool, Option("--undo", help="Take back a group that was not added yet.")] = False,
    as_: As = None,
    timeout: Seconds = 120.0,
) -> int:
    """Let a new group with replicas on this machine become part of the cluster, while it runs."""
    from amcast.local.groups import Adding
    from amcast.runtime import config

    number = name.removeprefix("g")
    if not (name.startswith("g") and number.isdecimal() and number.isascii()) or len(number) > 5:
        raise UsageError(f"{name!r} is no group; expected g and a number, such as g3")
    addresses = [config.address_in("--address", one) for one in address or ()]
    processes = processes_of(cluster)
    protocol = protocol_named(processes.config.protocol)
    adding = Adding(processes, protocol, int(number), as_, timeout, lambda line: print(line, flush=True))
    with processes.alone("add-group"):
        if undo:
            adding.undo()
        else:
            adding.add(addresses)
    return 0


@cluster_commands.command()
def restart(
    cluster: Cluster,
    name: ReplicaId,
    rejoin: Annotated[
        bool, Option("--rejoin", help="Set its data aside, and start from what the others of its group know.")
    ] = False,
    accept_loss: Annotated[
        bool, Option("--accept-loss", help="Let it take part at once, although others may know what its disk forgot.")
    ] = False,
    wait: Wait = True,
    timeout: Timeout = 60.0,
) -> int:
    """Start a node again; one that runs is stopped first."""
    from amcast.local.rejoining import refuse_too_many

    if rejoin and accept_loss:
        raise UsageError("--rejoin and --accept-loss exclude each other: who rejoins has nothing that could be lost")
    processes = processes_of(cluster)
    member = processes.config.member(name)
    refuse_unfit(processes, member)
    options = (["--rejoin"] if rejoin else []) + (["--accept-loss"] if accept_loss else [])
    with processes.alone():
        if rejoin:
            refuse_too_many(processes.config, member)
        processes.stop([member])
        processes.start(member, *options)
    return show_started(processes, (member,), cluster, wait, timeout)


@cluster_commands.command()
def lead(
    cluster: Cluster,
    name: ReplicaId,
    timeout: Annotated[float, Option(min=0, help="Seconds to wait until it leads.")] = 10.0,
) -> int:
    """Let a replica lead its group: the one that leads hands over to it, without a pause."""
    from amcast.local.leading import let_lead

    processes = processes_of(cluster)
    member = processes.config.member(name)
    if not protocol_named(processes.config.protocol).elects:
        raise UsageError(f"{processes.config.protocol} has no leaders; expected a protocol with one in each group")
    reason = let_lead(processes, member, timeout)
    if reason:
        complain(f"{name} does not lead after {timeout:g} s: {reason}; see 'amcast cluster logs {cluster} {name}'")
        return 1
    print(f"{name}: leads")
    return 0


@cluster_commands.command()
def convert(cluster: Cluster) -> int:
    """Convert the data of a stopped cluster that amcast 0.1 wrote; the old data is kept beside it."""
    from amcast.local.convert import convert_cluster

    processes = processes_of(cluster)
    with processes.alone():
        running = [member.name for member in processes.config.members if processes.running(member) is not None]
        if running:
            raise UsageError(f"{', '.join(running)} run; stop all nodes first with 'amcast cluster down {cluster}'")
        found = convert_cluster(processes.config, protocol_named(processes.config.protocol))
    for one in found:
        print(one.line)
    if not any(one.converted for one in found):
        print("nothing to convert: all data is of this format")
    return 0


@cluster_commands.command()
def join(cluster: Cluster, name: ReplicaId, wait: Wait = True, timeout: Timeout = 60.0) -> int:
    """Start a spare replica: it fetches what was delivered, and becomes a member."""
    processes = processes_of(cluster)
    member = processes.config.member(name)
    if not processes.config.is_spare(member):
        raise UsageError(f"{name} is a member from the start; 'amcast cluster init --spare N' makes some that may join")
    refuse_unfit(processes, member)
    with processes.alone():
        if processes.running(member) is None:
            processes.start(member)
    return show_started(processes, (member,), cluster, wait, timeout)


@cluster_commands.command()
def leave(cluster: Cluster, name: ReplicaId, timeout: Timeout = 60.0) -> int:
    """Let a member go: it stops when the others have agreed to go on without it."""
    processes = processes_of(cluster)
    member = processes.config.member(name)
    if not protocol_named(processes.config.protocol).joins:
        raise UsageError(f"{processes.config.protocol} has fixed members; expected a protocol of the AllConcur family")
    with processes.alone():
        if not processes.signal(member, signal.SIGUSR1):
            raise UsageError(f"{name} is not running")
        if processes.wait_until_gone([member], timeout):
            complain(f"{name} is still a member after {timeout:g} s; see 'amcast cluster logs {cluster} {name}'")
            return 1
    print(f"{name}: left")
    return 0


def show_started(
    processes: "Processes", members: "tuple[Member, ...]", cluster: Path, wait: bool, timeout: float
) -> int:
    state = processes.wait_until_ready(members, timeout) if wait else {member.name: "started" for member in members}
    table = plain_table("id", "pid", "clients at", "state", right=("pid",))
    for member in members:
        pid = processes.running(member)
        table.add_row(member.name, str(pid or "-"), str(member.client), state[member.name] or "ready")
    report_console().print(table)
    waited = [name for name, reason in state.items() if wait and reason is not None]
    if waited:
        first = next((name for name in waited if processes.running(processes.config.member(name)) is None), waited[0])
        see = f"amcast cluster logs {cluster} {first}"
        complain(f"{count(len(waited), 'node')} of {len(members)} not ready; {first}: {state[first]}; see '{see}'")
    return 1 if waited else 0


@cluster_commands.command()
def status(
    cluster: Cluster, as_json: Annotated[bool, Option("--json", help="Print one JSON document.")] = False
) -> int:
    """Show what every node says of itself; exit code 1 if one does not serve."""
    from amcast.local.membership import lines_about
    from amcast.local.status import line_about_formats, states_of

    processes = processes_of(cluster)
    rows = states_of(processes)
    if as_json:
        print_json({"cluster": processes.config.name, "nodes": rows})
    else:
        headings = ("id", "pid", "role", "ballot", "position", "lag", "peers", "clients", "uptime", "state")
        table = plain_table(*headings, right=("pid", "position", "lag", "peers", "clients", "uptime"))
        for row in rows:
            table.add_row(*(shown(heading, row.get(heading)) for heading in headings))
        report_console().print(table)
        for line in [*lines_about(processes.config), *filter(None, [line_about_formats(rows)])]:
            print(line)
    return 0 if all(row["state"] in ("ready", "spare") for row in rows) else 1


@cluster_commands.command()
def verify(
    cluster: Cluster,
    timeout: Annotated[float, Option(min=0, help="Seconds to wait for replicas that are behind.")] = 10.0,
    as_json: Annotated[bool, Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Compare the replicas of each group: what they have applied, and their states; exit code 1 if some differ."""
    from amcast.local.compare import compare, status_of_all

    config = cluster_at(cluster)
    found = compare(config, protocol_named(config.protocol), timeout)
    if as_json:
        print_json({"cluster": config.name, "groups": [asdict(one) for one in found]})
    else:
        for one in found:
            print(one.line)
        if not any(one.position for one in found) and all(one.status == "ok" for one in found):
            print("nothing was delivered yet, so there was nothing to compare")
    return {"ok": 0, "violated": 1, "unknown": 3}[status_of_all(found)]


def shown(heading: str, value: object) -> str:
    if value is None:
        return "-"
    if heading == "uptime" and isinstance(value, int | float):
        minutes, seconds = divmod(int(value), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    if isinstance(value, dict):  # peers: who is connected
        return f"{sum(map(bool, value.values()))}/{len(value)}"
    return f"{value:,}" if isinstance(value, int) and heading != "pid" else str(value)


@cluster_commands.command()
def logs(
    cluster: Cluster,
    name: Annotated[
        str | None, Argument(metavar="[ID]", help="A replica. Default: all.", autocompletion=replicas_like)
    ] = None,
    follow: Annotated[bool, Option("--follow", "-f", help="Go on as they are written, until Ctrl-C.")] = False,
    lines: Annotated[int, Option("--lines", "-n", min=0, help="How many of the last lines of each.")] = 20,
) -> int:
    """Print the end of the nodes' logs."""
    from amcast.local.membership import replica_of
    from amcast.local.processes import last_lines, new_lines, size_of

    processes = processes_of(cluster)
    config = processes.config
    members = config.members if name is None else (replica_of(config, name),)
    prefix = {member.name: f"{member.name}  " if name is None else "" for member in members}
    places = {member.name: size_of(processes.log(member)) for member in members}
    for member in members:
        for line in last_lines(processes.log(member), lines):
            print(f"{prefix[member.name]}{line}")
    try:
        while follow:
            for member in members:
                for line in new_lines(processes.log(member), places, member.name):
                    print(f"{prefix[member.name]}{line}", flush=True)
            time.sleep(FOLLOW_EVERY)
    except KeyboardInterrupt:
        pass  # the way to end it
    return 0


@cluster_commands.command()
def kill(
    cluster: Cluster,
    name: ReplicaId,
    send: Annotated[str, Option("--signal", metavar="NAME", help="KILL, TERM, STOP, CONT, …")] = "KILL",
) -> int:
    """Send a signal to a node, SIGKILL unless told otherwise."""
    try:
        wanted = signal.Signals[f"SIG{send.upper().removeprefix('SIG')}"]
    except KeyError:
        raise UsageError(f"there is no signal {send!r}; expected a name such as KILL, TERM, STOP or CONT") from None
    from amcast.local.membership import replica_of

    processes = processes_of(cluster)
    member = replica_of(processes.config, name)
    with processes.alone():
        pid = processes.running(member)
        if not processes.signal(member, wanted):
            raise UsageError(f"{name} is not running; start it with 'amcast cluster restart {cluster} {name}'")
        if wanted is signal.SIGKILL:
            processes.wait_until_gone([member], seconds=5.0)
    print(f"{name}: {wanted.name} to {pid}")
    return 0


@cluster_commands.command()
def down(cluster: Cluster) -> int:
    """Stop every node: SIGTERM, and SIGKILL after 10 seconds."""
    from amcast.local.membership import on_this_machine

    processes = processes_of(cluster)
    with processes.alone():
        running = [member for member in on_this_machine(processes.config) if processes.running(member) is not None]
        late = processes.stop(running)
    for member in late:
        complain(f"{member.name} did not stop when asked and was killed; see {os.path.relpath(processes.log(member))}")
    print(f"stopped {count(len(running), 'node')}" if running else "no node is running")
    return 0


@cluster_commands.command()
def trace(
    cluster: Cluster,
    out: Annotated[Path, Option(metavar="DIR", help="For the trace, as 'amcast verify' takes it.")],
    source: Annotated[
        Path | None,
        Option("--from", metavar="DIR", help="What nodes and clients wrote. Default: trace, in its folder."),
    ] = None,
    ended: Annotated[bool, Option("--ended", help="You know that nothing was under way at the end.")] = False,
    partial: Annotated[bool, Option("--partial", help="Gather although files of some members are missing.")] = False,
    force: Annotated[bool, Option("--force", help="Replace an older trace.")] = False,
) -> int:
    """Gather what the processes of a cluster recorded with --trace into one trace.

    It is whole, so that agreement and termination can be judged, if all nodes are up and at rest, or with --ended.
    Exit code 3 if it is not.
    """
    from amcast.local.gather import Gathered, gather
    from amcast.local.level import statuses_of, why_not_at_rest

    if ended and partial:
        raise UsageError("--ended and --partial exclude each other: what is missing may have been under way")
    config = cluster_at(cluster)
    source = source or config.path.parent / "trace"
    if not source.is_dir():
        raise UsageError(f"{source}: no such folder; say with --from where nodes and clients wrote with --trace")
    before = statuses_of(config)

    def why_not_ended(found: Gathered) -> str:
        return "" if ended else why_not_at_rest(found.members, before, statuses_of(config), found.deliveries)

    found = gather(config, source, out, why_not_ended=why_not_ended, partial=partial, force=force)
    here = len(found.members) - len(found.missing)
    said = f"{count(found.events, 'event')} of {here} of {count(len(found.members), 'replica')} in {out}"
    report_console().print(f"{said}; now: amcast verify {out}")
    if found.not_ended:
        advice = "gather again when all are up and idle, or use --ended if you know that nothing was under way"
        if found.missing:
            advice = f"copy their files to {source} and gather again"
        complain(f"no end row, so agreement and termination stay unknown: {found.not_ended}; {advice}")
    return 3 if found.not_ended else 0
