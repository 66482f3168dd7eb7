"""The space-time diagram of a few events as SVG, for papers, documents and counter-examples. It needs nothing else."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Final

from amcast.core.trace import Event
from amcast.errors import UsageError
from amcast.web.runs import LOST, DrawnRun, RunRows, about_of, picture_of
from amcast.web.sentences import described

MOST_EVENTS: Final = 3_000
WIDTH: Final = 960
LANE, BAND, TOP, RIGHT, FOOT = 34, 20, 46, 24, 30
COLOURS: Final = ("#0072b2", "#c65102", "#00855f", "#a3478c", "#7a6400", "#3f51c9", "#008a9a", "#8a4b2a")
BAD, GOOD, INK, MUTED, LINE = "#c2261b", "#0a7f5a", "#1c232b", "#5a6672", "#98a2ad"
DELIVER, LEADER = "#16324f", "#9a6a00"
STYLE: Final = "text{font:12px system-ui,'DejaVu Sans',sans-serif}.small{font-size:10.5px}.bold{font-weight:600}"
ABSTRACT: Final = "multicast to delivery"


def tag(name: str, inside: str = "", **attributes: str | float) -> str:
    """Return an element. `_` in the name of an attribute stands for `-`. Text must be escaped already."""
    written = "".join(
        f' {key.strip("_").replace("_", "-")}="{value if isinstance(value, str | int) else format(value, ".1f")}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{inside}</{name}>" if inside else f"<{name}{written}/>"


def words(text: str, x: float, y: float, fill: str, class_: str = "", anchor: str = "start") -> str:
    return tag("text", escape(text), x=x, y=y, fill=fill, class_=class_, text_anchor=anchor)


@dataclass
class Frame:
    """The layout of the picture."""

    left: float
    start: float
    span: float
    steps: bool
    y: dict[str, float]
    height: float = 0.0

    def x(self, time: int) -> float:
        return self.left + (time - self.start) / self.span * (WIDTH - self.left - RIGHT)


def draw_svg(run: DrawnRun, title: str = "", marks: Sequence[int] = ()) -> str:
    """Draw a run that has few events. `marks` are places of events that are numbered and stand out."""
    if len(run.events) > MOST_EVENTS:
        raise UsageError(
            f"{len(run.events):,} events: expected at most {MOST_EVENTS:,} in one picture; choose with --since and "
            "--until, or with --message"
        )
    frame, lanes = laid_out(run)
    names = dict.fromkeys(run.events[start].type or ABSTRACT for start, _ in run.arrows)
    series = {name: number % len(COLOURS) for number, name in enumerate(names)}
    drawn = [
        *(arrow(run, frame, start, end, series) for start, end in run.arrows),
        *(mark(event, frame, run.times[place]) for place, event in enumerate(run.events) if place not in marks),
    ]
    parts = [
        tag("title", escape(title or run.name)),
        tag("style", STYLE),
        tag("defs", "".join(head(number) for number in range(min(len(series), len(COLOURS))))),
        tag("rect", width=WIDTH, height=frame.height, fill="#fff"),
        words(shortened(title), 8, 16, INK, "bold"),
        *lanes,
        *axis(frame),
        tag("g", "".join(drawn), opacity=0.4 if marks else 1.0),
        *blame(run, frame, marks),
        *legend(frame, series),
    ]
    box = f"0 0 {WIDTH} {frame.height:.0f}"
    body = "\n".join(part for part in parts if part)
    size = {"width": WIDTH, "height": frame.height}
    return tag("svg", body, xmlns="http://www.w3.org/2000/svg", viewBox=box, role="img", **size)


def shortened(title: str, most: int = 130) -> str:
    return title if len(title) <= most else title[: most - 1] + "…"


def laid_out(run: DrawnRun) -> tuple[Frame, list[str]]:
    """Return the layout, and the lines of the processes."""
    left = 24 + 7.4 * max(len(name) for name in (*run.processes, "clients"))
    first, last = min(run.times), max(run.times)
    margin = max((last - first) / 20, 0.5)
    frame = Frame(left, first - margin, last - first + 2 * margin, run.steps, {})
    parts: list[str] = []
    y: float = TOP
    titles = ["clients" if group is None else f"group {group}" for group in run.groups]
    for number, (name, title) in enumerate(zip(run.processes, titles, strict=True)):
        if number == 0 or title != titles[number - 1]:
            parts.append(words(title, 8, y + 14, MUTED, "small bold"))
            y += BAND
        middle = frame.y[name] = y + LANE / 2
        parts.append(words(name, 8, middle + 4, INK))
        parts.append(tag("line", x1=left, y1=middle, x2=WIDTH - 8, y2=middle, stroke=LINE))
        y += LANE
    frame.height = y + FOOT
    return frame, parts


def axis(frame: Frame) -> Iterable[str]:
    rough = frame.span / 8
    power = 10.0 ** floor(log10(rough))
    step = max(1, round(next(factor for factor in (1, 2, 5, 10) if factor * power >= rough) * power))
    for tick in range(ceil(frame.start / step) * step, floor(frame.start + frame.span) + 1, step):
        x = frame.x(tick)
        yield tag("line", x1=x, y1=TOP - 6, x2=x, y2=TOP, stroke=MUTED)
        yield words(str(tick) if frame.steps else when(tick, step), x, TOP - 10, MUTED, "small", "middle")


def when(tick: int, step: int) -> str:
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if step * 10 >= size:
            return f"{tick / size:.{0 if step >= size else 1}f} {unit}"
    return f"{tick} ns"


def head(number: int) -> str:
    point = tag("path", d="M0 1 8 4 0 7z", fill=COLOURS[number])
    size = {"markerWidth": 7, "markerHeight": 7}
    return tag("marker", point, id=f"head{number}", viewBox="0 0 8 8", refX=7.5, refY=4, orient="auto", **size)


def arrow(run: DrawnRun, frame: Frame, start: int, end: int, series: dict[str, int]) -> str:
    event = run.events[start]
    number = series[event.type or ABSTRACT]
    x, y = frame.x(run.times[start]), frame.y[event.process]
    about = tag("title", escape(f"{event.process} {described(event)}"))
    if end == LOST:
        to = frame.y.get(event.peer or "", y)
        stub = f"M{x:.1f} {y:.1f}l6 {12 if to > y else -12}m-3 -3l6 6m0 -6l-6 6"
        return tag("path", about, d=stub, stroke=COLOURS[number], fill="none") if to != y else ""
    to = frame.y[run.events[end].process]
    if to == y:
        return ""
    dashes = {"stroke_dasharray": "5 4"} if run.abstract else {}
    line = f"M{x:.1f} {y:.1f}L{frame.x(run.times[end]):.1f} {to:.1f}"
    tip = f"url(#head{number})"
    return tag("path", about, d=line, stroke=COLOURS[number], stroke_width=1.3, fill="none", marker_end=tip, **dashes)


def mark(event: Event, frame: Frame, time: int) -> str:
    x, y = frame.x(time), frame.y[event.process]
    about = tag("title", escape(f"{event.process} {described(event)}"))
    label = words(event.message or "", x, y - 8, INK, "small", "middle")
    diamond = f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"
    match event.kind:
        case "deliver":
            return tag("path", about, d=diamond, fill=DELIVER) + label
        case "optdeliver":
            return tag("path", about, d=diamond, fill="#fff", stroke=DELIVER) + label
        case "multicast":
            return tag("circle", about, cx=x, cy=y, r=4.5, fill="#fff", stroke=INK, stroke_width=1.4) + label
        case "crash":
            cross = f"M{x - 6:.1f} {y - 6:.1f}l12 12m0 -12l-12 12"
            return tag("path", about, d=cross, stroke=BAD, stroke_width=2.5)
        case "restart":
            return tag("circle", about, cx=x, cy=y, r=6, fill="none", stroke=GOOD, stroke_width=2.5)
        case "leader":
            return tag("path", about, d=f"M{x:.1f} {y - 3:.1f}l-5 -9h10z", fill=LEADER)
    return ""


def blame(run: DrawnRun, frame: Frame, marks: Sequence[int]) -> Iterable[str]:
    """Yield the marks with their numbers. Marks of one moment and process share a line of text."""
    labels: dict[tuple[float, float], list[str]] = {}
    for number, place in enumerate(marks, start=1):
        event = run.events[place]
        x, y = frame.x(run.times[place]), frame.y[event.process]
        labels.setdefault((x, y), []).append(f"{number}. {event.message or event.kind}")
        yield tag("circle", cx=x, cy=y, r=9, fill="none", stroke=BAD, stroke_width=2.2)
        if event.kind == "deliver":
            yield tag("path", d=f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z", fill=BAD)
    for (x, y), said in labels.items():
        right = x + 11 + 7.0 * len(", ".join(said)) < WIDTH
        yield words(", ".join(said), x + 11 if right else x - 11, y - 7, BAD, "bold", "start" if right else "end")


def legend(frame: Frame, series: dict[str, int]) -> Iterable[str]:
    x, y = 8.0, frame.height - 10
    for name, number in series.items():
        if x > WIDTH - 100:
            break
        yield tag("line", x1=x, y1=y - 4, x2=x + 16, y2=y - 4, stroke=COLOURS[number], stroke_width=2)
        yield words(name, x + 21, y, MUTED, "small")
        x += 34 + 6.6 * len(name)


def draw_violation(title: str, rows: Sequence[Event], events: Iterable[Event]) -> str:
    """Draw a counter-example: its rows, and what else happened to its messages unless that is too much."""
    wanted = {name for row in rows for name in about_of(row)}
    found = {key_of(row): row for row in rows}
    for event in events:
        if event.run == rows[0].run and not wanted.isdisjoint(about_of(event)):
            found.setdefault(key_of(event), event)
    around = list(found.values())
    if len(around) > MOST_EVENTS:
        around = [event for event in around if event.kind not in ("send", "receive")]
    if len(around) > MOST_EVENTS:
        around = list(rows[:MOST_EVENTS])
    run = picture_of(RunRows(around, min((event.time for event in around if event.time is not None), default=0)))
    places = {key_of(event): place for place, event in enumerate(run.events)}
    return draw_svg(run, title, [places[key_of(row)] for row in rows if key_of(row) in places])


def key_of(event: Event) -> tuple[str, int, str]:
    return event.process, event.seq, event.kind
