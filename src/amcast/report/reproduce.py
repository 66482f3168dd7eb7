"""Runs a figure of a paper as sweeps on Spark, draws it, and puts its claims beside what was measured.

`<out>/<figure>-<scale>` holds the sweeps, each in a folder of its name, so that an interrupted figure can go on. It
also holds `<figure>.png`, `<figure>.csv` with what is drawn, and `claims.csv`. Nothing is fitted: the figure's file
says what is run, and the result is written beside what the paper says, with whether the claim is met.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from amcast.checks.evidence import NOTHING, Evidence
from amcast.errors import UsageError
from amcast.places import Place
from amcast.report import allconcur, drawing
from amcast.report.allconcur import Drawn, Rows
from amcast.report.figure import Figure, FigureClaim, load_figure
from amcast.sim.network import SECOND, nanoseconds
from amcast.spark.recovery import CLIENTS, crashes, delivery_bins, settled_s, with_empty_bins
from amcast.spark.row import OK, RUN_SCHEMA
from amcast.spark.seen import evidence_of
from amcast.spark.session import open_session
from amcast.spark.sweep import Watch, read_runs, sweep
from amcast.spark.tables import read_trace
from amcast.tracefile.out import write_whole

if TYPE_CHECKING:
    from amcast.spark.session import SparkSession

HOW: Final[Mapping[str, Callable[[list[float]], float]]] = {"mean": fmean, "max": max, "min": min}
EXTREMES: Final[Mapping[str, Callable[[Any], Any]]] = {"most": max, "least": min}

MET: Final = "met"
NOT_MET: Final = "not met"
DIFFERS: Final = "differs"  # not met, and the figure's file says why
SHOWN: Final = "shown"  # nothing is said that it could be compared with
NOT_MEASURED: Final = "not measured"
ELSEWHERE: Final = "other scale"


@dataclass(frozen=True)
class Measured:
    """A claim with its measured value: a mean, the extremes if there are several, or why there is nothing."""

    claim: FigureClaim
    value: float | None = None
    low: float | None = None
    high: float | None = None
    why_not: str = ""
    elsewhere: bool = False  # only at another scale is there something to measure

    @property
    def status(self) -> str:
        """Say whether the claim is met or, if that cannot be said, why."""
        if self.value is None:
            return ELSEWHERE if self.elsewhere else NOT_MEASURED
        if not self.claim.compares:
            return SHOWN
        if self.claim.is_met_by(self.value):
            return MET
        return DIFFERS if self.claim.differs else NOT_MET

    def document(self) -> dict[str, Any]:
        """Return the claim for JSON and CSV."""
        return {
            "claim": self.claim.what,
            "paper": self.claim.paper,
            "expected": self.claim.expected,
            "at_least": self.claim.at_least,
            "at_most": self.claim.at_most,
            "measured": self.value,
            "from": self.low,
            "to": self.high,
            "unit": self.claim.unit,
            "status": self.status,
            "note": self.why_not or (self.claim.differs if self.status == DIFFERS else ""),
        }


@dataclass(frozen=True)
class Reproduced:
    """The outcome of a figure."""

    figure: Figure
    scale: str
    folder: Place
    rows: Rows  # what is drawn
    claims: tuple[Measured, ...]
    not_ok: int  # runs that failed, stalled or took too long
    evidence: Evidence = NOTHING  # of the runs that are ok; of digraphs, each is a state

    def claims_that_are(self, status: str) -> list[Measured]:
        return [claim for claim in self.claims if claim.status == status]

    @property
    def picture(self) -> Place:
        return self.folder / f"{self.figure.name}.png"


def reproduce(
    names: Sequence[str],
    scale: str,
    out: Place,
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    force: bool = False,
    watch: Callable[[str], Watch] | None = None,
) -> list[Reproduced]:
    """Run these figures, one after the other. `watch` returns who is told of the progress of a sweep, by its name."""
    figures = [load_figure(name, scale) for name in names]
    with open_session("amcast reproduce", master=master, settings=settings, brief=True) as session:
        return [reproduce_figure(session, figure, scale, out, force, watch) for figure in figures]


def reproduce_figure(
    session: "SparkSession", figure: Figure, scale: str, out: Place, force: bool, watch: Callable[[str], Watch] | None
) -> Reproduced:
    folder = out / f"{figure.name}-{scale}"
    folder.mkdir(parents=True, exist_ok=True)
    runs: dict[str, list[dict[str, Any]]] = {}
    for name, spec in figure.sweeps.items():
        done = sweep(spec, folder / name, force=force, watch=watch(spec.name) if watch is not None else None)
        runs[name] = read_runs(done.out).to_pylist()
    not_ok = sum(row["status"] != OK for rows in runs.values() for row in rows)
    evidence = evidence_of(row for rows in runs.values() for row in rows if row["status"] == OK)
    rows: Rows = []
    measured_rows: Mapping[str, Rows] = {}
    if evidence or figure.digraphs:
        rows, measured_rows = KINDS[figure.plot.kind](session, figure, folder, runs)
    if figure.digraphs:
        evidence = Evidence(states=len(rows))
    claims = tuple(measure(claim, measured_rows, scale) for claim in figure.claims)
    write_whole(folder / f"{figure.name}.csv", as_csv(rows))
    write_whole(folder / "claims.csv", as_csv([claim.document() for claim in claims]))
    return Reproduced(figure, scale, folder, rows, claims, not_ok, evidence)


# What is drawn, and the rows that claims are measured on, by the name of their sweep


def draw_curves(session: "SparkSession", figure: Figure, folder: Place, runs: Mapping[str, Rows]) -> Drawn:
    plot = figure.plot
    columns = dict.fromkeys((plot.panel, *plot.line, plot.along, "seed", "status", plot.x, plot.y, "first_ms_mean"))
    if plot.y in drawing.GUESSES:
        columns[drawing.GUESSES[plot.y]] = None
    of_sweep = runs[plot.sweep or only(figure)]
    rows = [{name: row[name] for name in columns} for row in of_sweep]
    rows.sort(key=lambda row: tuple(row[name] for name in (plot.panel, *plot.line, plot.along, "seed")))
    complete = [row for row in rows if row[plot.y] is not None]
    drawing.draw_curves(folder, figure, complete)
    return rows, runs


def draw_timeline(session: "SparkSession", figure: Figure, folder: Place, runs: Mapping[str, Rows]) -> Drawn:
    name = figure.plot.sweep or only(figure)
    bin_ns = nanoseconds(figure.plot.bin)
    trace = read_trace(session, str((folder / name / "trace").absolute()))
    bins = with_empty_bins([row.asDict() for row in delivery_bins(trace, bin_ns).collect()], bin_ns)
    found = [row.asDict() for row in crashes(trace).collect()]
    ends = {row["run"]: row["duration_ns"] / SECOND for row in runs[name]}
    for crash in found:
        of_run = [row for row in bins if row["run"] == crash["run"] and row["place"] == CLIENTS]
        at, led = crash["crash_s"], crash["leader_s"]
        crash["settled_s"] = (
            None if led is None else settled_s(of_run, bin_ns / SECOND, at, at + led, ends[crash["run"]])
        )
    drawn = [row for row in bins if row["place"] in figure.plot.places]
    drawing.draw_timeline(folder, figure, drawn, found)
    return drawn, {name: found}


KINDS: Final[Mapping[str, Callable[..., Drawn]]] = {
    "curves": draw_curves,
    "timeline": draw_timeline,
    "grid": allconcur.draw_runs,
    "estimates": allconcur.draw_estimates,
    "rates": allconcur.draw_rates,
    "digraphs": allconcur.draw_digraphs,
}


def only(figure: Figure) -> str:
    if len(figure.sweeps) != 1:
        raise UsageError(f"{figure.name}.toml: has {len(figure.sweeps)} sweeps; expected plot and claims to name one")
    return next(iter(figure.sweeps))


# Claims


def measure(claim: FigureClaim, sweeps: Mapping[str, Rows], scale: str = "") -> Measured:
    """Measure a claim on these rows."""
    if claim.scale and scale and claim.scale != scale:
        return Measured(claim, why_not=f"only with --scale {claim.scale}", elsewhere=True)
    if not sweeps:
        return Measured(claim, why_not="not measured: no run is ok")
    rows = sweeps[claim.sweep] if claim.sweep else [row for of_sweep in sweeps.values() for row in of_sweep]
    selected = select(rows, claim.where or {})
    chosen = [row for row in selected if row.get(claim.column) is not None]
    if not chosen:
        return Measured(claim, why_not="not in this run" if selected else "not measured: no such run")
    if claim.over is None:
        return of_values(claim, [row[claim.column] for row in chosen])
    below = claim.over_column or claim.column
    others = [row for row in select(rows, claim.over) if row.get(below)]
    if not others:
        missing = ", ".join(str(value) for value in claim.over.values() if value not in EXTREMES)
        return Measured(claim, why_not=f"not measured: no run with {missing}")
    ratios = [row[claim.column] / other[below] for row in chosen for other in others if same_point(row, other, claim)]
    return of_values(claim, ratios) if ratios else Measured(claim, why_not="not measured: no point in common")


def of_values(claim: FigureClaim, values: list[float]) -> Measured:
    value = float(HOW[claim.how](values))
    several = len(values) > 1 and claim.how == "mean"
    return Measured(claim, value, min(values) if several else None, max(values) if several else None)


def select(rows: Rows, where: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rows with these values. "most" and "least" are extremes among rows with the other values."""
    found = [row for row in rows if all(row.get(key) == value for key, value in where.items() if value not in EXTREMES)]
    for key, value in where.items():
        if value in EXTREMES and found:
            extreme = EXTREMES[value](row[key] for row in found)
            found = [row for row in found if row[key] == extreme]
    return found


def same_point(row: Mapping[str, Any], other: Mapping[str, Any], claim: FigureClaim) -> bool:
    """Return whether two rows have one configuration, apart from what the claim compares."""
    config = RUN_SCHEMA.names[1 : RUN_SCHEMA.names.index("seed")]
    compared = {*(claim.where or {}), *(claim.over or {})}
    return all(row.get(name) == other.get(name) for name in config if name not in compared)


def as_csv(rows: Rows) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
