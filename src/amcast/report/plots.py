"""The plots of a report, drawn with matplotlib.

Each plot is drawn twice: as an SVG whose colours are CSS variables, so that one picture fits light and dark pages and
paper, and as a PNG in the colours of a light page. Labels come from traces: they are text, never markup or formulas.
"""

import io
import logging
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The names are the CSS variables; the values are the colours on white and on a dark page.
PALETTE: Final[Mapping[str, tuple[str, str]]] = {
    "ink": ("#1b1f24", "#e6e9ec"),
    "muted": ("#59636e", "#9aa4ae"),
    "grid": ("#d9dee3", "#353c44"),
    "alarm": ("#c2410c", "#ff8a5c"),
    "series-0": ("#0b66c3", "#5aa9f5"),
    "series-1": ("#d4570b", "#ff9757"),
    "series-2": ("#0a7f5a", "#4cc99a"),
    "series-3": ("#a8327a", "#ec82bd"),
    "series-4": ("#8a6d00", "#dbb83a"),
    "series-5": ("#5b4bc4", "#a99bff"),
    "series-6": ("#2b8aa3", "#62c6de"),
    "series-7": ("#7a4a2b", "#cf9b78"),
}
COLOURS: Final[Mapping[str, str]] = {name: light for name, (light, _) in PALETTE.items()}
DARK_COLOURS: Final[Mapping[str, str]] = {name: dark for name, (_, dark) in PALETTE.items()}
MOST_SERIES: Final = 8
LOGARITHMIC_FROM: Final = 30.0  # times from the least to the largest value
WIDTH: Final = 7.6  # inches
MOST_LETTERS: Final = 56  # of a label
LETTERS_OF_A_LEGEND: Final = 105  # in a row of it
DASHES: Final = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))  # for those who do not see colours
MARKERS: Final = "osD^vP*X"
Draw = Callable[["Figure", Mapping[str, str]], None]  # in these colours


@dataclass(frozen=True)
class Line:
    """A curve. `second` is drawn dashed in the same colour: another quantity of the same thing."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    second: Sequence[float] | None = None


@dataclass(frozen=True)
class Timeline:
    """One run over time, in milliseconds: rates and queue depths by group, and when which process crashed."""

    start_ms: Sequence[float]
    end_ms: Sequence[float]
    rates: Mapping[str, Sequence[float]]
    depths: Mapping[str, Sequence[float]]
    crashes: Sequence[tuple[str, float]] = field(default=())


@dataclass(frozen=True)
class Picture:
    """A plot. `svg` stands in a page as it is, and says what is to be seen."""

    name: str
    title: str
    svg: str
    png: bytes


def cdf(lines: Sequence[Line]) -> Picture:
    """Plot the share of deliveries over latency in ms."""
    shown = lines[:MOST_SERIES]

    def draw(figure: "Figure", colour: Mapping[str, str]) -> None:
        axes = figure.subplots()
        for number, line in enumerate(shown):
            style: Any = DASHES[number % len(DASHES)]
            axes.step(line.x, line.y, color=colour[f"series-{number}"], linestyle=style, where="post", lw=1.8)
        _label(axes, colour, "latency in ms", "% of deliveries")
        axes.set_ylim(0, 102)
        _scale(axes, "x", [value for line in shown for value in line.x], log_from=8)
        _legend(figure, axes, [line.label for line in shown])

    alt = "; ".join(
        f"{_plain(line.label)}: {_between(line.x)}, half within {_number(_median(line))} ms" for line in shown
    )
    return _picture("latency_cdf", "Latency distribution", f"Cumulative distribution of latency. {alt}.", 3.4, draw)


def load_curve(lines: Sequence[Line]) -> Picture:
    """Plot latency in ms (median, and p99 as `second`) over throughput, one point per load."""
    shown = lines[:MOST_SERIES]

    def draw(figure: "Figure", colour: Mapping[str, str]) -> None:
        axes = figure.subplots()
        for number, line in enumerate(shown):
            look: dict[str, Any] = {"color": colour[f"series-{number}"], "marker": MARKERS[number], "ms": 5, "lw": 1.8}
            axes.plot(line.x, line.y, **look)
            if line.second is not None:
                axes.plot(line.x, line.second, **look | {"lw": 1, "ms": 3, "linestyle": DASHES[1], "alpha": 0.8})
        _label(axes, colour, "messages per second", "latency in ms")
        values = [value for line in shown for value in (*line.y, *(line.second or ()))]
        _scale(axes, "y", values)
        _scale(axes, "x", [value for line in shown for value in line.x], from_zero=True)
        _legend(figure, axes, [line.label for line in shown], every=2 if any(line.second for line in shown) else 1)

    alt = "; ".join(f"{_plain(line.label)}: {_between(line.y)} at {_between(line.x, 'messages/s')}" for line in shown)
    title = "Latency over throughput"
    return _picture("load_curve", title, f"Median latency over throughput, one point per load. {alt}.", 3.6, draw)


def over_time(name: str, title: str, run: Timeline) -> Picture:
    """Plot the throughput of each group in a panel, and the queue depth in another. Crashes are marked."""
    groups = list(run.rates)[:MOST_SERIES]
    edges = [*run.start_ms, run.end_ms[-1]]

    def draw(figure: "Figure", colour: Mapping[str, str]) -> None:
        heights = [2.0] + [1.0] * (len(groups) - 1) + [1.0]
        panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        shown = [(run.rates[group], f"messages per second, {_plain(group)}") for group in groups]
        shown.append((run.depths[groups[0]], f"messages under way, {_plain(groups[0])}"))
        for number, (axes, (values, what)) in enumerate(zip(panels, shown, strict=True)):
            shade = colour["muted" if number == len(groups) else f"series-{number}"]
            axes.stairs(values, edges, color=shade, fill=True, alpha=0.25, lw=0)
            axes.stairs(values, edges, color=shade, lw=1.2, baseline=None)
            axes.set_title(what, loc="left", fontsize=9, color=colour["ink"], pad=4)
            _label(axes, colour, "time in ms" if axes is panels[-1] else "", "")
            axes.set_xlim(edges[0], edges[-1])
            axes.set_ylim(0, max(*values, 1) * (1.3 if number == 0 and run.crashes else 1.08))  # room for the words
            axes.locator_params(axis="y", nbins=4 if number == 0 else 2)
            axes.yaxis.set_major_formatter(lambda value, _: _number(value))
            axes.xaxis.set_major_formatter(lambda value, _: _number(value))
            for _, at in run.crashes:
                axes.axvline(at, color=colour["alarm"], lw=1.2, linestyle=(0, (2, 2)))
        for place, (process, at) in enumerate(run.crashes[:MOST_SERIES]):
            left = at > (edges[0] + edges[-1]) / 2
            panels[0].annotate(
                f"{_plain(process)} crashes",
                (at, 1 - 0.12 * (place % 4)),
                xycoords=panels[0].get_xaxis_transform(),
                xytext=(-4 if left else 4, -2),
                textcoords="offset points",
                ha="right" if left else "left",
                va="top",
                color=colour["alarm"],
                fontsize=9,
            )

    crashes = ", ".join(f"{_plain(process)} at {_number(at)} ms" for process, at in run.crashes) or "none"
    peak = max(run.rates[groups[0]], default=0)
    alt = f"Messages per second and messages under way over time. Peak {_number(peak)} messages/s; crashes: {crashes}."
    return _picture(name, title, alt, 2.6 + 0.8 * len(groups), draw)


def recoveries(points: Mapping[str, Sequence[float]]) -> Picture:
    """Plot how long groups were without a leader, one dot per crash."""
    labels = list(points)[:MOST_SERIES]

    def draw(figure: "Figure", colour: Mapping[str, str]) -> None:
        axes = figure.subplots()
        for number, label in enumerate(labels):
            values = sorted(points[label])
            spread = [number + 0.3 * ((place % 5) / 4 - 0.5) for place in range(len(values))]
            axes.scatter(values, spread, s=22, color=colour[f"series-{number}"], alpha=0.75, linewidths=0)
        axes.set_yticks(range(len(labels)), [_plain(label) for label in labels])
        axes.set_ylim(len(labels) - 0.4, -0.6)
        _label(axes, colour, "recovery in ms", "")
        _scale(axes, "x", [value for label in labels for value in points[label]], from_zero=True)

    alt = "; ".join(f"{_plain(label)}: {len(points[label])} crashes, {_between(points[label])}" for label in labels)
    return _picture("recovery", "Recovery after the crash of a leader", f"{alt}.", 1.1 + 0.45 * len(labels), draw)


def message_counts(sends: Mapping[str, float]) -> Picture:
    """Plot protocol messages per multicast, by type."""
    shown = dict(sorted(sends.items(), key=lambda item: -item[1])[:12])

    def draw(figure: "Figure", colour: Mapping[str, str]) -> None:
        axes = figure.subplots()
        bars = axes.barh(range(len(shown)), list(shown.values()), color=colour["series-0"], height=0.66)
        axes.bar_label(bars, [_number(value) for value in shown.values()], padding=4, color=colour["ink"], fontsize=9)
        axes.set_yticks(range(len(shown)), [_plain(name) for name in shown])
        axes.invert_yaxis()
        axes.margins(x=0.12)
        _label(axes, colour, "sent per multicast", "")
        axes.grid(False, axis="y")

    alt = ", ".join(f"{_plain(name)} {_number(value)}" for name, value in shown.items())
    title = "Protocol messages per multicast"
    return _picture(
        "message_counts", title, f"Messages sent per multicast, by type: {alt}.", 0.9 + 0.3 * len(shown), draw
    )


def _picture(name: str, title: str, alt: str, height: float, draw: Draw) -> Picture:
    placeholders = {variable: f"#0{number:02x}a5b" for number, variable in enumerate(COLOURS, 1)}
    svg = _saved(name, height, draw, placeholders, "svg").decode()
    return Picture(name, title, _for_page(svg, alt, placeholders), _saved(name, height, draw, COLOURS, "png"))


def _saved(name: str, height: float, draw: Draw, colour: Mapping[str, str], form: str) -> bytes:
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of the fonts that it looks through
    import matplotlib
    from matplotlib.figure import Figure

    settings: Any = {
        "text.parse_math": False,
        "svg.fonttype": "none",
        "svg.hashsalt": f"amcast-{name}",
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "axes.edgecolor": colour["muted"],
        "axes.labelcolor": colour["ink"],
        "axes.axisbelow": True,
        "grid.color": colour["grid"],
        "grid.linewidth": 0.7,
        "text.color": colour["ink"],
        "xtick.color": colour["muted"],
        "ytick.color": colour["muted"],
        "xtick.labelcolor": colour["ink"],
        "ytick.labelcolor": colour["ink"],
    }
    buffer = io.BytesIO()
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that the font lacks is the browser's to find
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure, colour)
        if form == "svg":
            figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        else:
            figure.savefig(buffer, format="png", dpi=160, facecolor="white")
    return buffer.getvalue()


def _for_page(svg: str, alt: str, placeholders: Mapping[str, str]) -> str:
    """Fit what matplotlib writes into a page: no prologue, no metadata, variables for colours, few ids."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace("xlink:href", "href")
    used = set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", svg))
    svg = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", svg)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    for variable, placeholder in placeholders.items():
        svg = svg.replace(placeholder, f"var(--{variable})")
    opening = re.compile(r'<svg [^>]*(viewBox="[^"]+")[^>]*>')
    # A function, for a name from a trace may hold a backslash, which would mean something in a template.
    return opening.sub(lambda found: f'<svg {found[1]} role="img" aria-label="{escape(alt)}">', svg, count=1)


def _label(axes: "Axes", colour: Mapping[str, str], x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True)
    axes.tick_params(which="both", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _scale(
    axes: "Axes", which: str, values: Sequence[float], from_zero: bool = False, log_from: float = LOGARITHMIC_FROM
) -> None:
    """Make the axis logarithmic where the values differ by orders of magnitude."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    positive = [value for value in values if value > 0]
    axis = axes.xaxis if which == "x" else axes.yaxis
    if not positive or len(positive) < len(values) or max(positive) / min(positive) < log_from:
        if from_zero or which == "y":
            axes.set(**{f"{which}lim": (min(0.0, *values, 0.0), max(values, default=1.0) * 1.06 or 1.0)})
        axis.set_major_formatter(FuncFormatter(lambda value, _: _number(value)))
        return
    axes.set(**{f"{which}scale": "log"})
    few = max(positive) / min(positive) < 1000
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _number(value)))
    axis.set_minor_formatter(NullFormatter())


def _legend(figure: "Figure", axes: "Axes", labels: Sequence[str], every: int = 1) -> None:
    if labels:
        figure.legend(
            axes.lines[: every * len(labels) : every],
            [_plain(label) for label in labels],
            loc="outside upper left",
            ncols=max(1, min(len(labels), LETTERS_OF_A_LEGEND // (8 + max(len(_plain(label)) for label in labels)))),
            frameon=False,
            handlelength=2.6,
            fontsize=9,
        )


def _plain(label: str) -> str:
    """Make a label one printable line. matplotlib hides labels that begin with an underscore, so that is masked."""
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in label)
    text = text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"
    return f"\N{ZERO WIDTH SPACE}{text}" if text.startswith("_") else text


def _number(value: float) -> str:
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.{1 if size >= 10 else 2 if size >= 0.1 else 4}f}".rstrip("0").rstrip(".")


def _between(values: Sequence[float], unit: str = "ms") -> str:
    if not values:
        return "nothing"
    low, high = _number(min(values)), _number(max(values))
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def _median(line: Line) -> float:
    return next((x for x, y in zip(line.x, line.y, strict=True) if y >= 50), 0.0)
