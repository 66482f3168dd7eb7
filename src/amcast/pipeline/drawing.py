"""Draws what `reproduce` measured. Rows in, a PNG out."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from math import nan
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import EngFormatter

from amcast.pipeline.figure import Plot

LABELS: Final = {
    "messages_per_second": "throughput, messages/s",
    "first_ms_mean": "mean latency to the first delivery in a group, ms",
    "complete_ms_mean": "mean latency until delivered in every group, ms",
    "last_ms_p95": "95th percentile of latency, ms",
    "dest_groups": "destination groups",
}
GUESSES: Final = {"last_ms_p95": "optimistic_ms_p95"}  # what to draw beside, where it was measured
MARKERS: Final = "osD^vP*X"
DPI: Final = 150
MOST_COLUMNS: Final = 3

Rows = Sequence[Mapping[str, Any]]


def draw_curves(path: Path, title: str, plot: Plot, rows: Rows) -> None:
    """A panel per value, a line per protocol, from few clients to many."""
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
    sheet.suptitle("\n".join(wrap(title, 40 + 30 * columns)), fontsize=11)
    sheet.supylabel(LABELS.get(plot.y, plot.y), fontsize=9)
    save(sheet, path)


def line_name(row: Mapping[str, Any], plot: Plot) -> str:
    return ", ".join(str(row[name]) for name in plot.line)


def draw_timeline(path: Path, title: str, plot: Plot, bins: Rows, crashes: Rows) -> None:
    """Throughput above, latency below, a line per place; the crashes and the new leaders are marked."""
    sheet = Sheet(figsize=(9, 6), layout="constrained")
    above, below = sheet.subplots(2, 1, sharex=True)
    for place in plot.places:
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
    sheet.suptitle(title)
    save(sheet, path)


def save(sheet: Sheet, path: Path) -> None:
    """All of the picture or nothing."""
    unfinished = path.with_name(f".{path.name}.tmp")
    FigureCanvasAgg(sheet)
    sheet.savefig(unfinished, dpi=DPI, format="png", metadata={"Software": None})
    unfinished.replace(path)
