"""The settings of a simulation, each stated once: name, type, default, kind, unit, title, help and limits.

From this table come the options of `amcast sim`, the keys of a sweep and the columns of its runs, the columns by which
metrics tell runs apart, and the titles of reports. A new setting is one field of `Settings`, and its use in
`simulation.py`. Nothing heavy is imported here, for every command line reads this table.
"""

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from amcast.errors import UsageError, meant

if TYPE_CHECKING:
    from amcast.sim.simulation import Crash

LARGEST: Final = 2**31 - 1
LONGEST: Final = 30 * 86_400 * 10**9  # nanoseconds: thirty days, so that no sum of times overflows
MESSAGES: Final = 1000  # where nothing says when a run ends
AS_THE_PROTOCOL: Final = "Default: 3, or 1 where the protocol says so."
NETWORKS: Final = (
    "constant:1ms, uniform:1ms,9ms, exponential:0.5ms,0.15ms (base, mean of the tail), lan, wan (leaders at one site), "
    "wan-spread, oam-lan, oam-wan, allconcur-sdc or allconcur-mdc."
)


class Kind(Enum):
    """What a value is: how it is written in a file or typed, and what type its column has."""

    PROTOCOL = "protocol"
    NETWORK = "network"
    COUNT = "count"
    RATE = "rate"  # per second
    TIME = "time"  # a number and a unit for people, nanoseconds inside
    FLAG = "flag"
    CRASHES = "crashes"


NUMBERS: Final = (Kind.COUNT, Kind.RATE, Kind.TIME)


@dataclass(frozen=True)
class Setting:
    """One entry of the table."""

    name: str
    default: Any
    kind: Kind
    title: str
    help: str
    unit: str = ""  # of the title, for people
    least: float = 1
    most: float = LARGEST
    option: str = ""  # "": the name
    metavar: str | None = None
    tells_apart: bool = True  # runs that differ in it are not taken together in metrics and reports
    is_load: bool = False  # how much there is to do: a curve has a point for each value
    is_axis: bool = True  # a key of a sweep

    @property
    def flag(self) -> str:
        """Return the option of the command line."""
        return f"--{self.option or self.name.replace('_', '-')}"

    @property
    def column(self) -> str:
        """Return the name of its column in the runs of a sweep."""
        return f"{self.name}_ns" if self.kind is Kind.TIME else self.name

    @property
    def measure(self) -> str:
        """Return the name of its column in the tables of metrics, where `crashes` counts those that happened."""
        return {Kind.TIME: f"{self.name}_ms", Kind.CRASHES: "crash_plan"}.get(self.kind, self.name)

    @property
    def heading(self) -> str:
        """Return its title with the unit."""
        return f"{self.title}, {self.unit}" if self.unit else self.title

    @property
    def expected(self) -> str:
        """Say which values it can have."""
        return {
            Kind.COUNT: f"a whole number from {self.least} to {self.most}",
            Kind.RATE: f"messages per second, from {self.least} to {self.most:.0f}",
            Kind.TIME: f"a time from {self.least} ns to thirty days",
        }[self.kind]

    def check(self, value: Any) -> None:
        """Raise UsageError for a number outside its limits. The default is always inside."""
        if self.kind in NUMBERS and value != self.default and not self.least <= value <= self.most:
            raise UsageError(f"{value}: expected {self.expected}")

    def read(self, value: object) -> Any:
        """Return what this means in a file or on the command line; UsageError if it means nothing."""
        found = READERS[self.kind](value, self)
        if self.kind in NUMBERS and not self.least <= found <= self.most:
            raise UsageError(f"{value!r}: expected {self.expected}")
        return found

    def as_json(self, value: Any) -> Any:
        return [f"{crash.process}@{crash.time}ns" for crash in value] if self.kind is Kind.CRASHES else value


# What is written in a file or typed, by its kind


def whole_number(value: object, setting: Setting) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{value!r}: expected {setting.expected}")
    return value


def rate(value: object, setting: Setting) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UsageError(f"{value!r}: expected {setting.expected}")
    return float(value)


def time(value: object, setting: Setting) -> int:
    from amcast.sim.network import nanoseconds

    if not isinstance(value, str):
        raise UsageError(f'{value!r}: expected a time with its unit in quotes, such as "10s"')
    return nanoseconds(value)


def flag(value: object, setting: Setting) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{value!r}: expected true or false")
    return value


def protocol_name(value: object, setting: Setting) -> str:
    from amcast.protocols import PROTOCOLS

    if value not in PROTOCOLS:
        raise UsageError(f"{value!r}: no such protocol; {meant(str(value), PROTOCOLS)}")
    return str(value)


def network_name(value: object, setting: Setting) -> str:
    from amcast.core.topology import Topology
    from amcast.sim.simulation import set_up

    set_up(str(value), Topology((5,), 1))
    return str(value)


def crash_list(value: object, setting: Setting) -> "tuple[Crash, ...]":
    from amcast.sim.simulation import Crash

    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise UsageError(f'{value!r}: expected a list such as ["g0/0@50ms"]')
    return tuple(Crash.parse(text) for text in value)


READERS: Final[dict[Kind, Callable[[object, Setting], Any]]] = {
    Kind.PROTOCOL: protocol_name,
    Kind.NETWORK: network_name,
    Kind.COUNT: whole_number,
    Kind.RATE: rate,
    Kind.TIME: time,
    Kind.FLAG: flag,
    Kind.CRASHES: crash_list,
}


def setting(kind: Kind, title: str, help: str, default: Any = dataclasses.MISSING, **more: Any) -> Any:
    """Return a field of `Settings` that holds an entry of the table."""
    of_kind = {"unit": "ms", "most": LONGEST} if kind is Kind.TIME else {}
    return field(default=default, metadata={"kind": kind, "title": title, "help": help, **of_kind, **more})


@dataclass(frozen=True)
class Settings:
    """The table, and the values of one run. Times are in nanoseconds."""

    protocol: str = setting(Kind.PROTOCOL, "protocol", "See 'amcast protocols'.")
    groups: int = setting(Kind.COUNT, "groups", f"Number of groups. {AS_THE_PROTOCOL}", 3)
    replicas: int = setting(Kind.COUNT, "replicas", f"Replicas per group, odd. {AS_THE_PROTOCOL}", 3)
    clients: int = setting(Kind.COUNT, "clients", "Number of clients.", 10, is_load=True)
    dest_groups: int | None = setting(
        Kind.COUNT, "destination groups", "Groups that a message goes to. Default: 2, or all if fewer.", None
    )
    network: str = setting(Kind.NETWORK, "network", NETWORKS, "constant:1ms")
    messages: int | None = setting(
        Kind.COUNT, "messages", f"Multicasts of the whole run. Default: {MESSAGES}.", None,
        most=10**12, tells_apart=False,
    )  # fmt: skip
    duration: int | None = setting(
        Kind.TIME, "duration", "Or multicast for so long, such as 10s.", None, tells_apart=False
    )
    rate: float | None = setting(
        Kind.RATE, "rate", "Open loop: messages per second. Default: closed loop.", None,
        unit="/s", least=1e-3, most=1e9, is_load=True,
    )  # fmt: skip
    payload: int = setting(Kind.COUNT, "payload", "Bytes of a message.", 20, unit="bytes", least=0, most=1 << 24)
    crashes: "tuple[Crash, ...]" = setting(  # noqa: RUF009
        Kind.CRASHES, "crash plan", "Such as g0/0@50ms; repeatable.", (), option="crash", metavar="WHO@TIME"
    )
    skew: int = setting(Kind.TIME, "skew", "Clocks are off by up to so much.", 0, least=0)
    checked: bool = setting(
        Kind.FLAG, "checked", "Assert the paper's invariants at run time.", False, tells_apart=False
    )
    senders_to: int = setting(  # 0: clients multicast
        Kind.COUNT, "senders to each group", "Members multicast instead of clients, and so many groups send to each.",
        0, least=0,
    )  # fmt: skip
    window: int = setting(  # -1: not fixed
        Kind.TIME, "wait window", "Wait window of a protocol that guesses. Default: estimated.", -1, least=0
    )
    rounds: int = setting(  # 0: clients multicast
        Kind.COUNT, "rounds", "The servers of a broadcast multicast instead of clients, so many messages each.", 0
    )  # fmt: skip
    batch: int = setting(Kind.COUNT, "batch", "Payloads in a message.", 1, most=1 << 16)
    seed: int = setting(
        Kind.COUNT, "seed", "The same seed makes the same run.", 1, least=0, most=2**63 - 1, tells_apart=False,
        is_axis=False,
    )  # fmt: skip


SETTINGS: Final = {
    each.name: Setting(each.name, each.default, **each.metadata) for each in dataclasses.fields(Settings)
}
AXES: Final = {name: each for name, each in SETTINGS.items() if each.is_axis}
# By these runs are told apart; the load comes last, so that rows in this order make a curve.
CONFIGURATION: Final = tuple(
    each for load in (False, True) for each in SETTINGS.values() if each.tells_apart and each.is_load is load
)


def refuse_exclusive(given: Collection[str]) -> None:
    """Raise UsageError if these settings say in two ways when a run ends."""
    for other in ("duration", "rounds"):
        if "messages" in given and other in given:
            raise UsageError(f"messages and {other} exclude each other: expected one of them")
