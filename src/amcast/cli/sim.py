"""`amcast sim`: one run in virtual time, summarised and, if asked, recorded."""

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from typer import Option

from amcast.cli.naming import ProtocolName, protocol_named
from amcast.cli.output import complain, print_json, report_console
from amcast.errors import InvariantViolation, UsageError
from amcast.places import place_of
from amcast.sim.settings import LARGEST, SETTINGS, Kind, Setting

if TYPE_CHECKING:
    from amcast.sim.simulation import Simulation

SETUP = (
    "An experiment of a paper: white-box-lan, white-box-wan, oam-lan, oam-wan, allconcur-sdc or allconcur-mdc. "
    "Other options change it."
)
TYPES: Final = {Kind.COUNT: int, Kind.RATE: float, Kind.FLAG: bool, Kind.CRASHES: list[str]}  # else a text
METAVARS: Final = {Kind.COUNT: "N", Kind.RATE: "N", Kind.TIME: "TIME", Kind.NETWORK: "NAME"}


def sim(
    protocol: ProtocolName,
    setup: Annotated[str | None, Option(metavar="NAME", help=SETUP)] = None,
    trace: Annotated[Literal["deliveries", "full"], Option(help="full: every send and receive too.")] = "deliveries",
    out: Annotated[str | None, Option(metavar="DIR", help="Write the trace there. Default: no trace.")] = None,
    force: Annotated[bool, Option("--force", help="Replace an older trace in DIR.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON document.")] = False,
    **settings: Any,
) -> int:
    """Simulate a protocol in virtual time until all is delivered; print throughput, latency and recovery.

    Exit code 3 if the run stalls: something was not delivered, and never will be.
    """
    name = protocol_named(protocol).name
    folder = None if out is None else place_of(out)
    from amcast.cli.running import run_world
    from amcast.cli.sim_report import command_line, print_report, run_document, unfinished
    from amcast.sim.summary import SummaryRecorder
    from amcast.sim.unfinished import too_many_crashes

    recorder = SummaryRecorder(full=trace == "full" and out is not None)
    try:
        simulation = simulation_of(name, setup, settings)
        world = simulation.world(recorder)
    except OverflowError:
        raise UsageError("a number or a time of this simulation is too large: expected a smaller one") from None
    for warning in too_many_crashes(simulation):
        complain(warning)
    try:
        run = run_world(world, simulation, recorder, folder, force)
    except InvariantViolation as violation:
        raise InvariantViolation(f"{violation}; replay with: {command_line(simulation)}") from violation
    for line in unfinished(run, folder):
        complain(line)
    if as_json:
        print_json(run_document(simulation, run, folder))
    else:
        print_report(report_console(), simulation, run, folder)
    return run.exit_code


def option_of(setting: Setting) -> inspect.Parameter:
    """Return the parameter of `sim` that a setting is."""
    kind = setting.kind
    is_number = kind in (Kind.COUNT, Kind.RATE)
    unstated = setting.default in (None, False, ()) or "Default:" in setting.help
    option = Option(
        setting.flag,
        help=setting.help if unstated else f"{setting.help} Default: {setting.default}.",
        metavar=setting.metavar or METAVARS.get(kind),
        min=setting.least if is_number else None,
        max=setting.most if is_number and setting.most < LARGEST else None,
    )
    type_of = TYPES.get(kind, str)
    default = False if kind is Kind.FLAG else None
    annotation = Annotated[type_of if kind is Kind.FLAG else type_of | None, option]  # type: ignore[valid-type]
    return inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_settings(command: Callable[..., int]) -> None:
    """Give a command an option for each setting, where its **settings stand."""
    first, second, *others = (
        each for each in inspect.signature(command).parameters.values() if each.kind is not each.VAR_KEYWORD
    )
    options = [option_of(setting) for setting in SETTINGS.values() if setting.kind is not Kind.PROTOCOL]
    parameters = [first, second, *options, *others]
    named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    command.__signature__ = inspect.Signature(named, return_annotation=int)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in named} | {"return": int}


with_settings(sim)


def simulation_of(protocol: str, setup: str | None, typed: Mapping[str, Any]) -> "Simulation":
    """Return the simulation that the options describe, in this set-up."""
    from amcast.sim.setups import simulation_in

    given: dict[str, Any] = {"protocol": protocol}
    for name, value in typed.items():
        if value is not None and value is not False:  # a 0 was typed
            try:
                given[name] = SETTINGS[name].read(value)
            except UsageError as error:
                raise UsageError(f"{SETTINGS[name].flag}: {error}") from error
    return simulation_in(setup, given)
