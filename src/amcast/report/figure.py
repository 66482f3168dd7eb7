"""A figure of a paper as one small file: what to run, what to draw, and what the paper says about it.

`figures/<name>.toml` has a `title`, the `paper` and, if need be, `notes` for the reader, and then

- `[sweep.<name>]`: one or more sweeps, as in a file for `amcast sweep`, and `[scale.small.<name>]` and
  `[scale.paper.<name>]` with the values that depend on the scale; what stands in `[sweep]`, `[scale.small]` or
  `[scale.paper]` itself holds for every sweep; unless it says otherwise, its one seed is 1, and it keeps traces
  only where they are drawn;
- or `digraphs`, numbers of servers: what is drawn are properties of their reliable digraphs, and nothing is simulated;
- `[plot]` of one `kind`. "curves": `x` and `y` are columns of the runs, with a panel per value of `panel`, a line per
  value of `line`, and points in the order of `along`. "timeline": throughput and latency over time, in bins, at
  `places` (groups, or "clients" for all of them). "rates": what the process `at` delivers over time, in whole rounds of
  at least `bin` together. "grid": a panel for each of `ys` and each value of `panel`; `log` names the logarithmic axes.
  "estimates" is a grid of what AllConcur+ is expected to achieve when servers fail, "digraphs" one of the digraphs;
- `[[claim]]`: `what` it is about, what the `paper` says, and how to measure it: the mean of a `column` of the runs, or
  its "max" or "min" if `how` says so, over the rows that have the values in `where` ("most" and "least" are extremes).
  Without a `sweep` these are the rows of all of them.
  With `over` it is the ratio to another selection, point by point (of `over_column` there, if that is another one).
  A claim with `cases` stands for one claim per case. A case adds to what they share; a shared `what` stands before its
  own. Where the paper says nothing, `paper` is left out.

A claim is met by a value near `expected`, which is a number of the paper or of a model, or by a value between
`at_least` and `at_most`. `within` is how far beyond still counts as met, relatively. A claim that is known not to be
met says why in `differs`. A claim without any of these is a number to look at. `scale` names the only scale at which
there is something to measure.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from amcast.errors import UsageError, meant
from amcast.spark.spec import Spec, spec_of

SCALES: Final = ("small", "paper")
OVER_TIME: Final = ("timeline", "rates")  # kinds of plots that are drawn from traces
NEAR: Final = 0.1  # relatively: how far from what is expected a value may be
KEYS: Final = ("title", "paper", "notes", "sweep", "scale", "digraphs", "plot", "claim")


@dataclass(frozen=True)
class Plot:
    kind: str
    sweep: str = ""  # "": the only one
    x: str = ""
    y: str = ""
    panel: str = ""
    line: tuple[str, ...] = ()
    along: str = ""
    bin: str = "300ms"
    places: tuple[str, ...] = ()
    at: str = ""
    ys: tuple[str, ...] = ()
    log: str = ""


@dataclass(frozen=True)
class FigureClaim:
    what: str
    paper: str
    column: str
    expected: float | None = None
    unit: str = "×"
    sweep: str = ""
    how: str = "mean"
    where: Mapping[str, Any] | None = None
    over: Mapping[str, Any] | None = None
    over_column: str = ""  # "": the same one
    at_least: float | None = None
    at_most: float | None = None
    within: float | None = None
    differs: str = ""
    scale: str = ""

    @property
    def compares(self) -> bool:
        """False for a number that is only shown."""
        return any(value is not None for value in (self.expected, self.at_least, self.at_most))

    def is_met_by(self, value: float) -> bool:
        beyond = self.within or 0.0
        near = NEAR if self.within is None else self.within
        return (
            (self.expected is None or abs(value - self.expected) <= near * abs(self.expected))
            and (self.at_least is None or value >= self.at_least * (1 - beyond))
            and (self.at_most is None or value <= self.at_most * (1 + beyond))
        )


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    paper: str
    notes: tuple[str, ...]
    sweeps: Mapping[str, Spec]
    plot: Plot
    claims: tuple[FigureClaim, ...]
    digraphs: tuple[int, ...] = ()


def figure_names() -> list[str]:
    """Return the figures that can be reproduced."""
    files = resources.files("amcast.report.figures").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def read_figure(name: str) -> dict[str, Any]:
    """Read the file of a figure. Raises UsageError, with the closest name, if there is none."""
    known = figure_names()
    if name not in known:
        raise UsageError(f"unknown figure {name!r}: {meant(name, known)} ('amcast reproduce --list' lists them)")
    file = resources.files("amcast.report.figures").joinpath(f"{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def load_figure(name: str, scale: str) -> Figure:
    """Return the figure with this name at this scale."""
    return figure_of(read_figure(name), name, scale)


def figure_of(document: Mapping[str, Any], name: str, scale: str) -> Figure:
    """Make a figure of what was read from its file."""
    for key in document:
        if key not in KEYS:
            raise UsageError(f"{name}.toml: unknown key {key!r}; {meant(key, KEYS)}")
    described, said = apart(document.get("sweep", {}))
    for_all = {"seeds": [1], "trace": "deliveries" if document["plot"]["kind"] in OVER_TIME else "none", **said}
    scaled, scaled_for_all = apart(document["scale"][scale] if described else {})
    for sweep in scaled:
        if sweep not in described:
            raise UsageError(f"{name}.toml: scale.{scale}.{sweep}: {meant(sweep, described)}")
    sweeps = {
        sweep: spec_of(
            {**for_all, **fixed, **scaled_for_all, **scaled.get(sweep, {})},
            f"{name}-{sweep}",
            f"{name}.toml: sweep.{sweep}",
        )
        for sweep, fixed in described.items()
    }
    claims = tuple(FigureClaim(**claim) for entry in document.get("claim", ()) for claim in cases_of(entry))
    for claim in claims:
        if claim.differs and not claim.compares:
            raise UsageError(f"{name}.toml: {claim.what}: differs from nothing; expected at_least, at_most or expected")
    if not described and not document.get("digraphs"):
        raise UsageError(f"{name}.toml: has neither sweeps nor digraphs; expected something to run")
    plot = dict(document["plot"])
    line = plot.pop("line", ())
    several: dict[str, Any] = {key: tuple(plot.pop(key, ())) for key in ("places", "ys")}
    return Figure(
        name=name,
        title=document["title"],
        paper=document["paper"],
        notes=tuple(document.get("notes", ())),
        sweeps=sweeps,
        plot=Plot(line=(line,) if isinstance(line, str) else tuple(line), **several, **plot),
        claims=claims,
        digraphs=tuple(document.get("digraphs", ())),
    )


def apart(table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Take a table apart into its sub-tables, which are those of sweeps, and what holds for all of them."""
    own = {key: value for key, value in table.items() if isinstance(value, dict)}
    return own, {key: value for key, value in table.items() if key not in own}


def cases_of(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the claims for which an entry of a figure's file stands: itself, or one per case."""
    shared = {key: value for key, value in entry.items() if key != "cases"}
    for case in entry.get("cases", [{}]):
        claim = {"paper": "", **shared, **case}
        for selection in {"where", "over"} & shared.keys() & case.keys():
            claim[selection] = {**shared[selection], **case[selection]}
        if "what" in shared and "what" in case:
            claim["what"] = f"{shared['what']}: {case['what']}"
        yield claim
