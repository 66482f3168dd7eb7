"""What a sweep runs: a TOML file of fixed values and lists becomes rows, one simulation each.

    seeds = 5                              # 1 to 5 for every configuration, or a list; absent: one, from its hash
    trace = "deliveries"                   # none, deliveries or full
    protocol = ["skeen", "white_box"]      # a list is an axis: all combinations are run
    groups = [2, 4, 10]
    clients = 100
    network = "lan"
    messages = 2000                        # or duration = "10s"
    crashes = [[], ["g0/0@50ms"]]          # a list of lists is an axis, a list of texts is one value

With a table `[sample]` (`n`, `seed`) n configurations are drawn instead: from each list by chance, and from a range
such as `{ min = 1, max = 1000, scale = "log" }` anything in it. A draw depends on the sample's seed, the number of the
row and the name of the key, and on nothing else; without `seeds`, the number of the row is in its seed as well.

Times are texts with a unit in the file and nanoseconds in the rows. The run of a row is named after its protocol and a
hash of its configuration, so that the same row has the same name whatever else is in the sweep.
"""

import dataclasses
import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import islice, product
from pathlib import Path
from typing import Any, Final

from amcast import __version__
from amcast.errors import UsageError, meant
from amcast.protocols import PROTOCOLS
from amcast.sim.network import SECOND
from amcast.sim.settings import AXES, LARGEST, MESSAGES, NUMBERS, SETTINGS, Kind, refuse_exclusive
from amcast.sim.simulation import Simulation, simulation_with

TRACES: Final = ("none", "deliveries", "full")
TIMEOUT: Final = 3600 * SECOND  # of a row, on the wall
MOST_TRIED: Final = 100  # rows, before executors are left to find out that none of them can be
SAMPLE_KEYS: Final = ("n", "seed")
RANGE_KEYS: Final = ("min", "max", "scale")
OTHER_KEYS: Final = ("name", "trace", "seeds", "timeout", "sample")
NOT_COMPARED: Final = ("name", "timeout_ns")  # a sweep may be resumed with other ones


@dataclass(frozen=True)
class Row:
    """One simulation of a sweep."""

    run: str
    simulation: Simulation

    @property
    def config(self) -> str:
        """The description as JSON, from which `simulation_of` makes it again."""
        return config_of(self.simulation)


@dataclass(frozen=True)
class Range:
    """Anything from low to high, both included; by powers rather than by steps if `log`."""

    low: float
    high: float
    log: bool
    whole: bool

    def at(self, share: float) -> float:
        """The value so far along: from 0 for the lowest to just below 1 for the highest."""
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high + self.whole) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low + self.whole)
        return min(int(value), int(self.high)) if self.whole else value


@dataclass(frozen=True)
class Spec:
    """A sweep, every value of it in the form that a `Simulation` takes."""

    name: str
    axes: Mapping[str, tuple[Any, ...] | Range]
    seeds: tuple[int, ...] | None = None
    sample: tuple[int, int] | None = None  # n, seed
    trace: str = "deliveries"
    timeout: int = TIMEOUT

    def rows(self) -> list[Row]:
        """The rows in a fixed order, each configuration once. Raises UsageError if none of them can be run."""
        found: dict[str, Row] = {}
        for number, values in enumerate(self.configurations()):
            draw = f" draw {number}" if self.sample is not None else ""
            for row in with_seeds(simulation_with(values), self.seeds, draw):
                found.setdefault(row.run, row)
        rows = list(found.values())
        refuse_if_none_can_be(rows)
        return rows

    def configurations(self) -> Iterator[dict[str, Any]]:
        if self.sample is not None:
            n, seed = self.sample
            for number in range(n):
                yield {key: drawn(axis, key, number, seed) for key, axis in self.axes.items()}
            return
        lists = [axis for axis in self.axes.values() if not isinstance(axis, Range)]
        for combination in product(*lists):
            yield dict(zip(self.axes, combination, strict=True))

    def document(self) -> dict[str, Any]:
        """The sweep as it was understood, for JSON."""
        axes = {
            key: dataclasses.asdict(axis) if isinstance(axis, Range) else [AXES[key].as_json(value) for value in axis]
            for key, axis in self.axes.items()
        }
        return {
            "amcast": __version__,
            "name": self.name,
            "trace": self.trace,
            "timeout_ns": self.timeout,
            "seeds": None if self.seeds is None else list(self.seeds),
            "sample": None if self.sample is None else dict(zip(SAMPLE_KEYS, self.sample, strict=True)),
            "axes": axes,
        }


# Reading


def load_spec(path: Path) -> Spec:
    """The sweep that a TOML file describes; UsageError, naming the file and the key, for what it cannot mean."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); expected a sweep in TOML") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is not TOML: {error}") from error
    return spec_of(document, path.stem, str(path))


def spec_of(document: Mapping[str, Any], name: str, source: str) -> Spec:
    """A sweep from what was read from a file; `source` is how errors name it."""
    try:
        refuse_unknown_keys(document, (*AXES, *OTHER_KEYS))
        refuse_exclusive(document)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from error
    if "protocol" not in document:
        raise UsageError(f"{source}: protocol is missing; expected one of {', '.join(PROTOCOLS)}, or a list")
    values = dict(document)
    if not {"messages", "duration", "rounds"} & values.keys():
        values["messages"] = MESSAGES
    sample = read(values, "sample", read_sample, None, source)
    sampled = sample is not None
    axes = {key: read(values, key, partial(read_axis, key, sampled), None, source) for key in AXES if key in values}
    return Spec(
        name=str(values.get("name", name)),
        axes=axes,
        seeds=read(values, "seeds", read_seeds, None, source),
        sample=sample,
        trace=read(values, "trace", read_trace, "deliveries", source),
        timeout=read(values, "timeout", AXES["duration"].read, TIMEOUT, source),
    )


def refuse_unknown_keys(table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise UsageError(f"unknown key {key!r}; {meant(key, known)}")


def read(values: Mapping[str, Any], key: str, reader: Callable[[Any], Any], default: Any, source: str) -> Any:
    if key not in values:
        return default
    try:
        return reader(values[key])
    except UsageError as error:
        raise UsageError(f"{source}: {key}: {error}") from error


def read_axis(key: str, sampled: bool, value: object) -> tuple[Any, ...] | Range:
    if isinstance(value, dict):
        return read_range(key, value, sampled)
    several = isinstance(value, list) and (
        AXES[key].kind is not Kind.CRASHES or any(isinstance(part, list) for part in value)
    )
    values = value if isinstance(value, list) and several else [value]
    if not values:
        raise UsageError("[]: expected at least one value")
    return tuple(AXES[key].read(each) for each in values)


def read_range(key: str, value: dict[str, Any], sampled: bool) -> Range:
    has_ranges = AXES[key].kind in NUMBERS
    if not sampled or not has_ranges:
        what = "a range is drawn from" if has_ranges else "there is no range of these"
        raise UsageError(f"{what}; expected a value or a list" + ("" if sampled else ", or a table [sample] with n"))
    refuse_unknown_keys(value, RANGE_KEYS)
    if "min" not in value or "max" not in value:
        raise UsageError("expected both min and max")
    low, high = AXES[key].read(value["min"]), AXES[key].read(value["max"])
    scale = value.get("scale", "linear")
    if scale not in ("linear", "log"):
        raise UsageError(f"scale {scale!r}: expected linear or log")
    if low > high or (scale == "log" and low <= 0):
        raise UsageError(f"from {value['min']} to {value['max']}: expected the lower bound first, above 0 for log")
    return Range(low, high, scale == "log", AXES[key].kind is not Kind.RATE)


def read_sample(value: object) -> tuple[int, int]:
    if not isinstance(value, dict):
        raise UsageError(f"{value!r}: expected a table with n and seed")
    refuse_unknown_keys(value, SAMPLE_KEYS)
    if "n" not in value:
        raise UsageError("n is missing; expected how many configurations to draw")
    return whole(value["n"], 1), whole(value.get("seed", 1), 0)


def whole(value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST:
        raise UsageError(f"{value!r}: expected a whole number from {least} to {LARGEST}")
    return value


def read_seeds(value: object) -> tuple[int, ...]:
    if isinstance(value, list) and value:
        return tuple(whole(seed, 0) for seed in value)
    return tuple(range(1, whole(value, 1) + 1))


def read_trace(value: object) -> str:
    if value not in TRACES:
        raise UsageError(f"{value!r}: expected one of {', '.join(TRACES)}")
    return str(value)


# Rows


def drawn(axis: tuple[Any, ...] | Range, key: str, row: int, seed: int) -> Any:
    digest = blake2b(f"{seed}/{row}/{key}".encode(), digest_size=8).digest()
    share = (int.from_bytes(digest) >> 11) / (1 << 53)
    return axis.at(share) if isinstance(axis, Range) else axis[int(share * len(axis))]


def with_seeds(simulation: Simulation, seeds: tuple[int, ...] | None, draw: str) -> Iterator[Row]:
    own = int.from_bytes(hash_of(config_of(simulation, without="seed") + draw, 6))
    for seed in seeds if seeds is not None else (own,):
        seeded = dataclasses.replace(simulation, seed=seed)
        yield Row(f"{seeded.protocol}-{hash_of(config_of(seeded), 8).hex()}", seeded)


def hash_of(text: str, size: int) -> bytes:
    return blake2b(text.encode(), digest_size=size).digest()


def config_of(simulation: Simulation, without: str = "") -> str:
    """What differs from the defaults, as JSON with its keys in order: a field that is new changes no old name."""
    values = {name: getattr(simulation, name) for name in SETTINGS if name != without}
    kept = {
        name: SETTINGS[name].as_json(value)
        for name, value in values.items()
        if name == "seed" or value != SETTINGS[name].default
    }
    return json.dumps(kept, sort_keys=True)


def simulation_of(config: str) -> Simulation:
    """Return the simulation that `config_of` described."""
    values = json.loads(config)
    crashes = SETTINGS["crashes"].read(values.pop("crashes", []))
    return Simulation(**values, crashes=crashes)


def refuse_if_none_can_be(rows: list[Row]) -> None:
    """A sweep of which every row is impossible is a mistake; one of which some are says so in its result."""
    first = None
    for row in islice(rows, MOST_TRIED):
        try:
            row.simulation.world()
            return
        except UsageError as error:
            first = first or error
    if first is not None and len(rows) <= MOST_TRIED:
        raise UsageError(f"none of the {len(rows)} rows can be run; the first: {first}") from first
