"""The sections of a report. A section about which the tables say nothing is left out."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from amcast.checks.evidence import Evidence
from amcast.checks.verdict_file import Verdicts
from amcast.core.plural import count
from amcast.places import Place
from amcast.protocols import PROTOCOLS
from amcast.report import plots
from amcast.report import verdicts as report_verdicts
from amcast.report.page import Section, figure, notes, number, paragraph, table, tiles
from amcast.report.plots import Line, Picture, Timeline
from amcast.report.verdicts import Judged, judged
from amcast.sim.settings import CONFIGURATION, Kind
from amcast.spark.seen import evidence_of, silences

Row = Mapping[str, Any]

ALL_GROUPS: Final = "all groups"
MOST_TIMELINES: Final = 3
MOST_GROUPS: Final = 4  # in the plot of a run over time
ROLES: Final = {
    "leader": "first delivery in a group",
    "follower": "last delivery in a group",
    "optimistic": "first optimistic delivery",
}
CONFIG_TITLES: Final = {setting.measure: setting.heading for setting in CONFIGURATION}
SHOWN_ALONE: Final = [each.measure for each in CONFIGURATION if each.kind in (Kind.PROTOCOL, Kind.NETWORK)]
LOADS: Final = [each.measure for each in CONFIGURATION if each.is_load]
LATENCY_TITLES: Final = {
    "samples": "samples",
    **{f"{name}_ms": f"{name}, ms" for name in ("p50", "p95", "p99", "max", "mean")},
    **{f"{name}_delta": f"{name}, δ" for name in ("p50", "p99")},
}


@dataclass(frozen=True)
class Material:
    """All that a report is made of."""

    source: Place
    tables: Mapping[str, pa.Table]
    notes: Sequence[str] = ()
    verdicts: Verdicts | None = None  # None: it was not verified
    spec: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, name: str) -> list[dict[str, Any]]:
        found = self.tables[name].to_pylist() if name in self.tables else []
        return [row | {"crash_plan": _times(row["crash_plan"] or "")} if "crash_plan" in row else row for row in found]

    @cached_property
    def runs(self) -> list[dict[str, Any]]:
        """The runs, each with its configuration, its throughput and its latency to the first delivery."""
        if "runs" not in self.tables:
            return [_of_line(line) for line in self.rows("sweep")]
        wanted = ("p50_ms", "p99_ms")
        latency = {
            row["run"]: {name: row[name] for name in wanted}
            for row in self.rows("latency")
            if row["group"] is None and row["role"] == "leader"
        }
        return [row | latency.get(row["run"], dict.fromkeys(wanted)) for row in self.rows("runs")]

    @cached_property
    def evidence(self) -> Evidence:
        """The evidence that the numbers of the page rest on."""
        return evidence_of(self.runs)

    @cached_property
    def deliveries(self) -> dict[str, int]:
        return {str(run["run"]): run["deliveries"] or 0 for run in self.runs}

    @cached_property
    def judged(self) -> list[Judged]:
        given = self.verdicts
        return [] if given is None else [judged(verdict, self.deliveries, given.doubt) for verdict in given.rows]

    @cached_property
    def doubts(self) -> list[str]:
        """The reasons not to take the page for what it seems to say; empty if there are none."""
        if self.verdicts is None:
            return silences(self.runs)
        if not self.verdicts.rows:
            return [*silences(self.runs), "the verdicts are none at all; verify this trace"]
        return [*silences(self.runs), *report_verdicts.doubts(self.verdicts, self.judged, self.deliveries)]

    @cached_property
    def varying(self) -> list[str]:
        """The parts of the configuration in which runs differ."""
        return [name for name in CONFIG_TITLES if len({run[name] for run in self.runs}) > 1]

    @property
    def only(self) -> dict[str, Any] | None:
        return self.runs[0] if len(self.runs) == 1 else None


def _of_line(line: Row) -> dict[str, Any]:
    """Give a line of a sweep the names that the tables of metrics have."""
    return {
        **{name: line[name] for name in ("run", "seed")},
        **{setting.measure: _value(line[setting.column], setting.kind) for setting in CONFIGURATION},
        "p50_ms": line["first_ms_p50"],
        "p99_ms": line["first_ms_p99"],
        "duration_ms": line["virtual_ms"],
        "outcome": line["status"],
        "crashes": line["crashes_seen"],
        "optimistic_deliveries": 0,
        **{name: line[name] for name in ("multicasts", "delivered_messages", "deliveries", "messages_per_second")},
    }


def _value(value: Any, kind: Kind) -> Any:
    if kind is Kind.TIME:
        return None if value is None or value < 0 else value / 1e6
    return _times(";".join(value or ())) if kind is Kind.CRASHES else value


def title(material: Material) -> str:
    only = material.only
    if "sweep" in material.tables:
        return f"Sweep {material.spec.get('name') or material.source.name}"
    if only is not None and only["protocol"]:
        name = only["protocol"]
        return PROTOCOLS[name].title if name in PROTOCOLS else str(name)
    return f"Trace {material.source.name}"


def subtitle(material: Material) -> str:
    only = material.only
    if only is None:
        parts = [count(max(len(material.runs), len(material.rows("sweep"))), "run")]
        if material.varying:
            parts.append("over " + ", ".join(CONFIG_TITLES[name].partition(",")[0] for name in material.varying))
        return " ".join(parts)
    parts = [f"run {only['run']}"]
    if only["groups"] and only["replicas"]:
        parts.append(f"{count(only['groups'], 'group')} of {only['replicas']}")
    if only["clients"]:
        parts.append(count(only["clients"], "client"))
    parts += [str(only["network"])] if only["network"] else []
    parts += [f"seed {only['seed']}"] if only["seed"] is not None else []
    return " · ".join(parts)


def lead(material: Material) -> str:
    runs = material.runs
    found = [
        ("messages", number(sum(run["multicasts"] or 0 for run in runs)), _share_delivered(runs)),
        ("deliveries", number(material.evidence.deliveries), _by_whom(material.evidence)),
    ]
    only = material.only
    if only is not None and only["messages_per_second"] is not None:
        spent = f"in {number(only['duration_ms'])} ms"
        found.append(("throughput", f"{number(only['messages_per_second'])} /s", spent))
    if only is not None and only["p50_ms"] is not None:
        found.append(("median latency", f"{number(only['p50_ms'])} ms", f"p99 {number(only['p99_ms'])} ms"))
    if "sweep" in material.tables:
        statuses = Counter(line["status"] for line in material.rows("sweep"))
        others = ", ".join(f"{many:,} {status}" for status, many in sorted(statuses.items()) if status != "ok")
        found.insert(0, ("runs", number(statuses.total()), others or "all ok"))
    elif only is None:
        found.insert(0, ("runs", number(len(runs)), ""))
    if material.verdicts is not None:
        found.append(("verified", *report_verdicts.tile(material.verdicts, material.judged, material.deliveries)))
    recovered = [row["recovery_ms"] for row in material.rows("recovery") if row["recovery_ms"] is not None]
    if recovered:
        how_many = f"longest of {len(recovered):,}" if len(recovered) > 1 else "after the crash of a leader"
        found.append(("recovery", f"{number(max(recovered))} ms", how_many))
    return tiles(found) + notes((*material.doubts, *material.notes))


def _share_delivered(runs: Sequence[Row]) -> str:
    multicasts = sum(run["multicasts"] or 0 for run in runs)
    delivered = sum(run["delivered_messages"] or 0 for run in runs)
    if not multicasts:
        return "nothing was multicast"
    if multicasts == delivered:
        return "all delivered"
    return f"{delivered:,} delivered everywhere" if delivered else "none delivered everywhere"


def _by_whom(seen: Evidence) -> str:
    if not seen.deliveries:
        return "nothing was delivered"
    return f"of {seen.replicas:,} of {count(seen.expected, 'replica')}" if seen.expected else ""


def sections(material: Material, pictures: list[Picture], folder: str) -> list[Section]:
    """Return all sections that have something to say. Their plots are added to `pictures`."""
    makers: dict[str, Callable[[Material, list[Picture], str], Iterator[str]]] = {
        "Verdicts": lambda material, pictures, folder: report_verdicts.section(material.judged),
        "Failures": _failures,
        "Latency": _latency,
        "Over time": _over_time,
        "Recovery": _recovery,
        "Delays": _convoy,
        "Optimistic delivery": _optimistic,
        "Protocol messages": _messages,
        "Runs": _runs,
    }
    found = []
    for heading, make in makers.items():
        body = "".join(make(material, pictures, folder))
        if body:
            found.append(Section(heading, body, heading.lower().replace(" ", "-")))
    return found


def _failures(material: Material, pictures: list[Picture], folder: str) -> Iterator[str]:
    failed = [line for line in material.rows("sweep") if line["status"] != "ok"]
    if failed:
        columns = {"run": "run", "status": "status", "error": "what went wrong"}
        yield table("Rows of the sweep that did not end well", columns, failed, f"{folder}/sweep.csv")


def _latency(material: Material, pictures: list[Picture], folder: str) -> Iterator[str]:
    curve = _load_lines(material)
    if any(len(line.x) > 1 for line in curve):
        pictures.append(plots.load_curve(curve))
        yield figure(pictures[-1], _of_many(curve, "median, and p99 dashed, of first deliveries; mean over seeds"))
    lines = _cdf_lines(material)
    if lines:
        pictures.append(plots.cdf(lines))
        at_most = (
            "" if len(material.runs) == 1 else ", at the highest load" * bool({"clients", "rate"} & {*material.varying})
        )
        yield figure(pictures[-1], _of_many(lines, f"from the multicast{at_most}"))
    if material.only is not None:
        rows = [
            row | {"role": ROLES[row["role"]], "group": row["group"] or ALL_GROUPS} for row in material.rows("latency")
        ]
        rows.sort(key=lambda row: (list(ROLES.values()).index(row["role"]), row["group"] != ALL_GROUPS, row["group"]))
        if rows:
            columns = {"role": "from the multicast to the", "group": "group", **_of_interest(LATENCY_TITLES, rows)}
            yield table("Latency by group and role", columns, rows, f"{folder}/latency.csv")
        return
    by_load = sorted(
        material.rows("latency_by_load"),
        key=lambda row: (_in_order(row[name] for name in CONFIG_TITLES), list(ROLES).index(row["role"])),
    )
    rows = [row | {"role": row["role"].replace("leader", "first").replace("follower", "last")} for row in by_load]
    if rows:
        columns = {name: CONFIG_TITLES[name] for name in material.varying}
        columns |= {"role": "delivery", **_of_interest(LATENCY_TITLES, rows)}
        yield table("Latency by configuration, all seeds together", columns, rows, f"{folder}/latency_by_load.csv")


def _in_order(values: Iterable[Any]) -> list[tuple[bool, Any]]:
    """Return a key to sort by: what is not given comes first."""
    return [(value is not None, value) for value in values]


def _of_interest(columns: Mapping[str, str], rows: Sequence[Row]) -> dict[str, str]:
    """Drop the columns that are null everywhere, such as those in δ where it is not known."""
    return {name: title for name, title in columns.items() if any(row.get(name) is not None for row in rows)}


def _of_many(lines: Sequence[Line], note: str) -> str:
    hidden = len(lines) - plots.MOST_SERIES
    return f"{note}; {hidden:,} more curves are in the tables" if hidden > 0 else note


def _label(config: Row, names: Sequence[str]) -> str:
    """Say what sets this configuration apart."""
    parts = []
    for name in names:
        value = config[name]
        if name in SHOWN_ALONE:
            parts.append(str(value))
        elif name == "crash_plan":
            parts.append(f"crash {value}" if value else "no crash")
        elif value is not None:
            parts.append(f"{CONFIG_TITLES[name].partition(',')[0]} {number(value)}")
    return ", ".join(parts)


def _times(plan: str) -> str:
    """Write `g0/0@5000000ns` as `g0/0@5ms`."""
    return re.sub(r"(\d+)ns\b", lambda found: f"{int(found[1]) / 1e6:g}ms", plan)


def _load_lines(material: Material) -> list[Line]:
    """Return a curve for each configuration, with a point for each load: means over the seeds."""
    apart = [name for name in material.varying if name not in LOADS]
    curves: dict[tuple[Any, ...], dict[tuple[float, float], list[Row]]] = defaultdict(lambda: defaultdict(list))
    for run in material.runs:
        if run["messages_per_second"] and run["p50_ms"] is not None:
            curves[tuple(run[name] for name in apart)][_load(run)].append(run)
    lines = []
    for points in curves.values():
        loads = [points[load] for load in sorted(points)]
        means = {
            name: [fmean(run[name] for run in runs) for runs in loads]
            for name in ("messages_per_second", "p50_ms", "p99_ms")
        }
        label = _label(loads[0][0], apart) or "all runs"
        lines.append(Line(label, means["messages_per_second"], means["p50_ms"], means["p99_ms"]))
    return sorted(lines, key=lambda line: line.label)


def _cdf_lines(material: Material) -> list[Line]:
    """Return first and last deliveries of one configuration, or the first of several at their highest loads."""
    curves: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in material.rows("latency_cdf"):
        curves[(*(row[name] for name in CONFIG_TITLES), row["role"])].append(row)
    if len({key[:-1] for key in curves}) == 1:
        found = {ROLES[key[-1]]: points for key, points in curves.items()}
        ordered = [(role, found[role]) for role in ROLES.values() if role in found]
    else:
        apart = [name for name in material.varying if name not in LOADS]
        highest: dict[str, list[Row]] = {}
        for key, points in curves.items():
            label = _label(points[0], apart) or "all runs"
            if key[-1] == "leader" and (label not in highest or _load(points[0]) > _load(highest[label][0])):
                highest[label] = points
        ordered = sorted(highest.items())
    return [Line(label, [row["ms"] for row in points], [row["percent"] for row in points]) for label, points in ordered]


def _load(config: Row) -> tuple[float, int]:
    return config["rate"] or 0.0, config["clients"] or 0


def _over_time(material: Material, pictures: list[Picture], folder: str) -> Iterator[str]:
    timeline = material.tables.get("timeline")
    if timeline is None or timeline.num_rows == 0:
        return
    crashes: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for row in material.rows("incidents"):
        if row["kind"] == "crash" and row["time_ms"] is not None:
            crashes[row["run"]].append((row["process"], row["time_ms"]))
    names = [run["run"] for run in material.runs]
    pauses = {row["run"]: row["recovery_ms"] or 0.0 for row in material.rows("recovery")}
    of_interest = sorted((run for run in names if run in crashes), key=lambda run: -pauses.get(run, 0.0))
    chosen = names if len(names) <= MOST_TIMELINES else of_interest[:MOST_TIMELINES]
    for place, run in enumerate(chosen):
        rows = timeline.filter(pc.equal(timeline.column("run"), run)).to_pylist()
        if not rows:
            continue
        heading = "Throughput and queue" if material.only is not None else f"Throughput and queue of {run}"
        name = "over_time" if place == 0 else f"over_time_{place + 1}"
        pictures.append(plots.over_time(name, heading, _timeline(rows, crashes[run])))
        width = number(rows[0]["end_ms"] - rows[0]["start_ms"])
        yield figure(pictures[-1], f"in bins of {width} ms; a group counts a message at its first delivery there")
    left = len(of_interest) - len(chosen)
    if left > 0 and len(names) > MOST_TIMELINES:
        yield paragraph(f"{left:,} more runs with crashes are in {folder}/timeline.csv.")


def _timeline(rows: Sequence[Row], crashes: Sequence[tuple[str, float]]) -> Timeline:
    by_group: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["group"] is not None, row["group"] or "", row["bin"])):
        by_group[row["group"] or ALL_GROUPS].append(row)
    if len(by_group) > MOST_GROUPS + 1 or len(by_group) == 2:  # too many to tell apart; or the only one is all of them
        by_group = {ALL_GROUPS: by_group[ALL_GROUPS]}
    spans = {row["bin"]: (row["start_ms"], row["end_ms"]) for row in rows}  # clocks that differ: not all have all bins
    bins = range(min(spans), max(spans) + 1)
    width = rows[0]["end_ms"] - rows[0]["start_ms"]
    start = min(spans[min(spans)])
    return Timeline(
        [start + (place - bins[0]) * width for place in bins],
        [start + (place + 1 - bins[0]) * width for place in bins],
        {group: _in_bins(found, "messages_per_second", bins) for group, found in by_group.items()},
        {group: _in_bins(found, "queue_depth", bins, carried=True) for group, found in by_group.items()},
        crashes,
    )


def _in_bins(rows: Sequence[Row], name: str, bins: Iterable[int], carried: bool = False) -> list[float]:
    """Return one value for each bin: 0, or what it was before, where there is none."""
    known = {row["bin"]: row[name] for row in rows}
    values: list[float] = []
    for place in bins:
        values.append(known.get(place, values[-1] if carried and values else 0))
    return values


def _recovery(material: Material, pictures: list[Picture], folder: str) -> Iterator[str]:
    rows = material.rows("recovery")
    if not rows:
        return
    configs = {run["run"]: run for run in material.runs}
    apart = [name for name in material.varying if name != "crash_plan"]
    points: dict[str, list[float]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: _in_order(configs[row["run"]][name] for name in apart)):
        if row["recovery_ms"] is not None:
            points[_label(configs[row["run"]], apart) or "all runs"].append(row["recovery_ms"])
    if sum(map(len, points.values())) > 1:
        pictures.append(plots.recoveries(points))
        yield figure(pictures[-1], "a dot per crash")
    columns = {
        **({} if material.only is not None else {"run": "run"}),
        "process": "leader",
        "group": "group",
        "crash_ms": "crash at, ms",
        "recovery_ms": "recovery, ms",
        **_of_interest({"recovery_delta": "recovery, δ"}, rows),
    }
    caption = "From the crash of a leader to the next message that is new to its group"
    yield table(caption, columns, rows, f"{folder}/recovery.csv")


def _convoy(material: Material, pictures: list[Picture], folder: str) -> Iterator[str]:
    configs = {run["run"]: run for run in material.runs}
    pooled: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in material.rows("convoy"):
        config = configs[row["run"]]
        pooled[(*(config[name] for name in material.varying), row["dest_groups"])].append(row)
    rows = [
        _pooled(found) | {name: configs[found[0]["run"]][name] for name in material.varying}
        for _, found in sorted(pooled.items(), key=lambda item: _in_order(item[0]))
    ]
    if not rows:
        return
    columns = {
        **{name: CONFIG_TITLES[name] for name in material.varying},
        "to": "destinations",
        "samples": "first deliveries",
        "earliest_ms": "earliest, ms",
        "earliest_delta": "earliest, δ",
        "share": "later than that",
        "share_over_delta": "by more than δ",
        "mean_extra_ms": "mean delay, ms",
    }
    columns.pop("dest_groups", None)
    shown = [row | {name: _percent(row[name]) for name in ("share", "share_over_delta")} for row in rows]
    caption = (
        "First deliveries later than the earliest one of a message to as many groups in the same run: they waited for "
        "other messages (the convoy effect) or for the network"
    )
    yield table(caption, _of_interest(columns, rows), shown, f"{folder}/convoy.csv")


def _pooled(rows: Sequence[Row]) -> dict[str, Any]:
    """Take runs of one configuration together."""
    samples = sum(row["samples"] for row in rows)
    over_delta = [row["delayed_over_delta"] for row in rows if row["delayed_over_delta"] is not None]
    deltas = [row["collision_free_delta"] for row in rows if row["collision_free_delta"] is not None]
    return {
        "to": rows[0]["dest_groups"],
        "samples": samples,
        "earliest_ms": min(row["collision_free_ms"] for row in rows),
        "earliest_delta": min(deltas, default=None),
        "share": sum(row["delayed"] for row in rows) / samples,
        "share_over_delta": sum(over_delta) / samples if len(over_delta) == len(rows) else None,
        "mean_extra_ms": sum(row["mean_extra_ms"] * row["samples"] for row in rows) / samples,
    }


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def _optimistic(material: Material, pictures: list[Picture], folder: str) -> Iterator[str]:
    rows = material.rows("optimistic")
    if not rows:
        return
    columns = {
        **({} if material.only is not None else {"run": "run"}),
        "process": "process",
        "optimistic_deliveries": "optimistic",
        "deliveries": "deliveries",
        "mistakes": "mistakes",
        "rollbacks": "rollbacks",
        "share": "share of mistakes",
    }
    shown = [row | {"share": _percent(row["share"])} for row in rows]
    yield table(
        "Optimistic deliveries that came in another order in the end", columns, shown, f"{folder}/optimistic.csv"
    )


def _messages(material: Material, pictures: list[Picture], folder: str) -> Iterator[str]:
    protocols = {run["run"]: str(run["protocol"] or "") for run in material.runs}
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in material.rows("messages"):
        if row["sends_per_multicast"] is not None:
            found[(protocols[row["run"]], row["type"] or "all types")].append(row)
    if not found:
        return
    means: list[dict[str, Any]] = [
        {"protocol": protocol, "type": name}
        | {column: _mean(rows, column) for column in ("sends_per_multicast", "bytes_per_multicast")}
        for (protocol, name), rows in found.items()
    ]
    means.sort(key=lambda row: (str(row["protocol"]), row["type"] != "all types", -(row["sends_per_multicast"] or 0)))
    one = len({row["protocol"] for row in means}) == 1
    if one:
        by_type = {str(row["type"]): row["sends_per_multicast"] or 0.0 for row in means if row["type"] != "all types"}
        pictures.append(plots.message_counts(by_type))
        yield figure(pictures[-1])
    columns = {
        **({} if one else {"protocol": "protocol"}),
        "type": "type",
        "sends_per_multicast": "sent per multicast",
        "bytes_per_multicast": "bytes per multicast",
    }
    of = "" if material.only is not None else ", mean over runs"
    yield table(f"Protocol messages by type{of}", _of_interest(columns, means), means, f"{folder}/messages.csv")


def _mean(rows: Sequence[Row], column: str) -> float | None:
    values = [row[column] for row in rows if row[column] is not None]
    return fmean(values) if values else None


def _runs(material: Material, pictures: list[Picture], folder: str) -> Iterator[str]:
    columns = {
        "run": "run",
        **{name: CONFIG_TITLES[name] for name in material.varying},
        "seed": "seed",
        "outcome": "outcome",
        "multicasts": "messages",
        "delivered_messages": "delivered",
        "deliveries": "deliveries",
        "crashes": "crashes",
        "duration_ms": "duration, ms",
        "messages_per_second": "messages/s",
        "p50_ms": "p50, ms",
        "p99_ms": "p99, ms",
    }
    runs = [row | {"seed": None if row["seed"] is None else str(row["seed"])} for row in material.runs]  # to be copied
    name = "runs" if "runs" in material.tables else "sweep"
    yield table("Configuration and totals of each run", _of_interest(columns, runs), runs, f"{folder}/{name}.csv")
