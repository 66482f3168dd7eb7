"""Draws what `reproduce` measured. Rows in, a PNG out."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import cycle
from math import nan
from textwrap import wrap
from typing import Any, Final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

from amcast.places import Place
from amcast.protocols import PROTOCOLS
from amcast.report.figure import Figure, Plot
from amcast.report.plots import MARKERS
from amcast.sim.network import SECOND, nanoseconds
from amcast.sim.settings import SETTINGS
from amcast.tracefile.out import write_whole

LABELS: Final = {setting.column: setting.title for setting in SETTINGS.values()} | {
    "messages_per_second": "throughput, messages/s",
    "first_ms_mean": "mean latency to the first delivery in a group, ms",
    "complete_ms_mean": "mean latency until delivered in every group, ms",
    "last_ms_p95": "95th percentile of latency, ms",
    "replicas": "servers",
    "batch": "transactions of 250 bytes in a message",
    "own_ms_p50": "median latency, ms",
    "transactions_per_second": "transactions/s at each server",
    "allconcur-sdc": "one data centre",
    "allconcur-mdc": "five data centres",
    "latency_ratio": "latency over AllConcur's",
    "throughput_ratio": "throughput over AllConcur's",
    "scenario": "failures: all the time (wc), after every λ unreliable rounds, never (nf)",
}
GUESSES: Final = {"last_ms_p95": "optimistic_ms_p95"}  # what to draw beside, where it was measured
DPI: Final = 150
MOST_COLUMNS: Final = 3

Rows = Sequence[Mapping[str, Any]]


def draw_curves(folder: Place, figure: Figure, rows: Rows) -> None:
    """Draw a panel per value and a line per protocol, from few clients to many."""
    plot = figure.plot
    panels = sorted({row[plot.panel] for row in rows})
    columns = 2 if len(panels) == 4 else min(MOST_COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    names = sorted({line_name(row, plot) for row in rows})
    sheet = Sheet(figsize=(max(6.5, 4.2 * columns), 3.4 * lines + 0.8), layout="constrained")
    guess = GUESSES.get(plot.y, "")
    for number, panel in enumerate(panels, start=1):
        axes = sheet.add_subplot(lines, columns, number)
        here = [row for row in rows if row[plot.panel] == panel]
        for marker, name in zip(cycle(MARKERS), names, strict=False):
            points = sorted((row for row in here if line_name(row, plot) == name), key=lambda row: row[plot.along])
            (line,) = axes.plot(
                [row[plot.x] for row in points], [row[plot.y] for row in points], marker=marker, label=name
            )  # fmt: skip
            guessed = [row for row in points if row.get(guess) is not None]
            if guessed:
                style: dict[str, Any] = {"marker": marker, "linestyle": "--", "color": line.get_color()}
                label = f"{name}: optimistic deliveries"
                axes.plot([row[plot.x] for row in guessed], [row[guess] for row in guessed], label=label, **style)
        axes.set_title(f"{LABELS.get(plot.panel, plot.panel)}: {panel}", fontsize=10)
        axes.set_xlim(0, 1.08 * max(row[plot.x] for row in here))
        axes.set_ylim(0, 1.15 * max(row[plot.y] for row in here))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(alpha=0.3)
        if number > len(panels) - columns:
            axes.set_xlabel(LABELS.get(plot.x, plot.x), fontsize=9)
    handles = sheet.axes[0].get_legend_handles_labels()
    sheet.legend(*handles, loc="outside lower left", ncols=2 * columns, frameon=False, fontsize=9)
    sheet.supylabel(LABELS.get(plot.y, plot.y), fontsize=9)
    save(sheet, folder, figure, columns)


def line_name(row: Mapping[str, Any], plot: Plot) -> str:
    return ", ".join(str(row[name]) for name in plot.line)


def draw_grid(folder: Place, figure: Figure, rows: Rows) -> None:
    """Draw a line of panels per column of the rows, with a panel for each value of `panel`.

    Rows come in the order in which they are drawn.
    """
    plot = figure.plot
    panels = sorted({row[plot.panel] for row in rows}, reverse=True) if plot.panel else [""]
    sheet = Sheet(figsize=(max(6.5, 4.8 * len(panels)), 3.2 * len(plot.ys) + 0.6), layout="constrained")
    grid = sheet.subplots(len(plot.ys), len(panels), squeeze=False, sharex="col")
    for column, panel in enumerate(panels):
        here = [row for row in rows if not plot.panel or row[plot.panel] == panel]
        for line, y in enumerate(plot.ys):
            axes = grid[line][column]
            plot_lines(axes, plot, y, [row for row in here if row[y] is not None])
            if column == 0:
                axes.set_ylabel(LABELS.get(y, y), fontsize=9)
        grid[0][column].set_title(LABELS.get(panel, panel), fontsize=10)
        grid[-1][column].set_xlabel(LABELS.get(plot.x, plot.x), fontsize=9)
    legends = [axes.get_legend_handles_labels() for axes in grid[0]]
    if plot.line and all(labels == legends[0][1] for _, labels in legends):
        sheet.legend(*legends[0], loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    elif plot.line:
        for axes in grid[0]:
            axes.legend(fontsize=8)
    save(sheet, folder, figure, len(panels))


def plot_lines(axes: Any, plot: Plot, y: str, rows: Rows) -> None:
    names = dict.fromkeys(line_title(row, plot) for row in rows)
    for number, (marker, name) in enumerate(zip(cycle(MARKERS), names, strict=False)):
        points = [row for row in rows if line_title(row, plot) == name]
        width = 3 if number == 0 and "protocol" in plot.line else 1.5  # where two coincide, both are seen
        style: dict[str, Any] = {"marker": marker, "markersize": 4, "linewidth": width, "label": name}
        axes.plot([row[plot.x] for row in points], [row[y] for row in points], **style)
    numbers = sorted({row[plot.x] for row in rows if not isinstance(row[plot.x], str)})
    if "x" in plot.log:
        axes.set_xscale("log", base=2)
        axes.set_xticks(numbers, [str(number) for number in numbers])
        axes.minorticks_off()
    if "y" in plot.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}" if value < 1000 else f"{value / 1000:g}k")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))
    axes.grid(alpha=0.3)


def line_title(row: Mapping[str, Any], plot: Plot) -> str:
    """Name a line: protocols by their titles, numbers with what they count."""
    values = [(row[name], LABELS.get(name, name)) for name in plot.line]
    return ", ".join(
        PROTOCOLS[value].title if value in PROTOCOLS else f"{value} {what}" if isinstance(value, int) else str(value)
        for value, what in values
    )


def draw_rates(folder: Place, figure: Figure, rounds: Rows, failures: Sequence[float]) -> None:
    """Draw transactions over time, a line per protocol. Crashes are marked."""
    sheet = Sheet(figsize=(9, 4), layout="constrained")
    axes = sheet.add_subplot()
    for name in dict.fromkeys(row["protocol"] for row in rounds):
        here = [row for row in rounds if row["protocol"] == name]
        times, rates = joined(here, nanoseconds(figure.plot.bin) / SECOND)
        axes.step(times, rates, where="pre", label=PROTOCOLS[name].title, linewidth=1.2)
    for number, failure in enumerate(failures):
        label = "a server fails" if number == 0 else None
        axes.axvline(failure, color="tab:red", linestyle="--", linewidth=1, label=label)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel("time, s", fontsize=9)
    axes.set_ylabel(f"transactions/s at {figure.plot.at}", fontsize=9)
    axes.grid(alpha=0.3)
    sheet.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    save(sheet, folder, figure, 2)


def joined(rounds: Rows, seconds: float) -> tuple[list[float], list[float]]:
    """Join whole rounds until they have taken so long. Return when they end and the transactions per second."""
    ends: list[float] = []
    rates: list[float] = []
    since, transactions = 0.0, 0
    for row in rounds:
        transactions += row["transactions"]
        if row["time_s"] - since >= seconds:
            ends.append(row["time_s"])
            rates.append(transactions / (row["time_s"] - since))
            since, transactions = row["time_s"], 0
    return ends, rates


def draw_timeline(folder: Place, figure: Figure, bins: Rows, crashes: Rows) -> None:
    """Draw throughput above and latency below, a line per place. Crashes and new leaders are marked."""
    sheet = Sheet(figsize=(9, 6), layout="constrained")
    above, below = sheet.subplots(2, 1, sharex=True)
    for place in figure.plot.places:
        here = [row for row in bins if row["place"] == place]
        label = "all clients" if place == "clients" else f"leader of {place}"
        for axes, column in ((above, "messages_per_second"), (below, "latency_ms")):
            heights = [nan if row[column] is None else row[column] for row in here]
            axes.plot([row["start_s"] for row in here], heights, label=label, linewidth=1.2, marker=".", markersize=3)
    for axes in (above, below):
        axes.grid(alpha=0.3)
        axes.set_ylim(bottom=0)
        for crash in crashes:
            axes.axvline(crash["crash_s"], color="tab:red", linestyle="--", linewidth=1)
            if crash["leader_s"] is not None:
                axes.axvline(crash["crash_s"] + crash["leader_s"], color="tab:green", linestyle=":", linewidth=1)
    above.set_ylabel("messages/s")
    below.set_ylabel("mean latency, ms")
    below.set_xlabel("time, s (dashed: crash; dotted: new leader)")
    above.legend(fontsize=8, ncols=2)
    save(sheet, folder, figure, 2)


def save(sheet: Sheet, folder: Place, figure: Figure, columns: int) -> None:
    """Write the picture, under a title as wide as so many columns."""
    sheet.suptitle("\n".join(wrap(figure.title, 40 + 30 * columns)), fontsize=11)
    FigureCanvasAgg(sheet)
    picture = BytesIO()
    sheet.savefig(picture, dpi=DPI, format="png", metadata={"Software": None})
    write_whole(folder / f"{figure.name}.png", picture.getvalue())
