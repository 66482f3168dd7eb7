"""The cells of a report's page, and what they have to be by the tables and the verdicts that it was made from.

What is expected is put together here a second time, by other means than in the report: from rows of the tables alone.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from statistics import fmean
from typing import Any

from amcast.checks import ALWAYS
from amcast.checks.evidence import Evidence, total

Row = Mapping[str, Any]

GOOD, BAD = {"ok"}, {"violated", "failed", "crashed"}
UNSURE = {"unknown", "stalled", "empty", "timeout", "refused", "cut off"}
ROLES = {
    "leader": "first delivery in a group",
    "follower": "last delivery in a group",
    "optimistic": "first optimistic delivery",
}
CONFIG = {
    "protocol": "protocol", "groups": "groups", "replicas": "replicas", "dest_groups": "destination groups",
    "network": "network", "payload": "payload, bytes", "skew_ms": "skew, ms", "clients": "clients", "rate": "rate, /s",
}  # fmt: skip
LATENCY = {
    "samples": "samples", "p50_ms": "p50, ms", "p95_ms": "p95, ms", "p99_ms": "p99, ms", "max_ms": "max, ms",
    "mean_ms": "mean, ms", "p50_delta": "p50, δ", "p99_delta": "p99, δ",
}  # fmt: skip


# ---------------------------------------------------------------- the page


@dataclass
class Cell:
    text: str = ""
    classes: str = ""
    remark: str = ""  # of a tile


@dataclass
class Table:
    headings: list[str] = field(default_factory=list)
    rows: list[list[Cell]] = field(default_factory=list)
    more: int = 0  # rows that are said to be elsewhere


class Page(HTMLParser):
    """Tiles, notes and tables of a page; plots are not looked at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tiles: dict[str, Cell] = {}
        self.tables: dict[str, Table] = {}
        self.notes: list[str] = []
        self.paragraphs: list[str] = []
        self._table = Table()
        self._caption = ""
        self._open: list[tuple[str, str]] = []  # elements and their classes
        self._tile = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("meta", "br"):
            return
        classes = str(dict(attrs).get("class") or "")
        self._open.append((tag, classes))
        if tag == "table":
            self._table, self._caption = Table(), ""
        elif tag == "th":
            self._table.headings.append("")
        elif tag == "tr" and self._inside("tbody"):
            self._table.rows.append([])
        elif tag == "td":
            self._table.rows[-1].append(Cell())
        elif tag == "dt":
            self._tile = ""
        elif tag == "li" and self._inside("ul", "notes"):
            self.notes.append("")
        elif tag == "p":
            self.paragraphs.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "caption":
            assert self._caption not in self.tables, f"two tables are called {self._caption!r}"
            self.tables[self._caption] = self._table
        elif tag == "p" and self._open[-1] == ("p", "note"):
            words = self.paragraphs[-1].split()
            if words[:1] == ["and"]:
                self._table.more = int(words[1].replace(",", ""))
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tag, classes = self._open[-1] if self._open else ("", "")
        cell = self.tiles.get(self._tile) if self._inside("dd") else None
        if self._inside("td"):
            cell = self._table.rows[-1][-1]
        if tag == "caption":
            self._caption += data
        elif tag == "th":
            self._table.headings[-1] += data
        elif tag == "dt":
            self._tile += data
            self.tiles[self._tile] = Cell()
        elif tag == "small" and cell is not None:
            cell.remark += data
        elif cell is not None:
            cell.text += data
            cell.classes += classes if tag == "span" else ""
        elif tag == "li" and self.notes:
            self.notes[-1] += data
        elif tag == "p":
            self.paragraphs[-1] += data

    def _inside(self, tag: str, classes: str | None = None) -> bool:
        return any(name == tag and classes in (None, of) for name, of in self._open)


# ---------------------------------------------------------------- what is expected


@dataclass(frozen=True)
class Share:
    """Shown in percent."""

    value: float | None


def check_page(
    text: str, tables: Mapping[str, Sequence[Row]], verdicts: Sequence[Row] | None = None, notes: Sequence[str] = ()
) -> Page:
    """Compare every tile and every cell of every table; `notes` have to be on the page."""
    page = Page(text)
    assert set(notes) <= set(page.notes), page.notes
    expected_tiles = dict(_tiles(tables, verdicts))
    assert page.tiles.keys() == expected_tiles.keys()
    for name, (value, unit, remark) in expected_tiles.items():
        _check_cell(name, page.tiles[name], value, unit)
        if remark is not None:
            assert page.tiles[name].remark == remark, (name, page.tiles[name], remark)
    expected_tables = {caption: rows for caption, rows in _tables(tables, verdicts or ()) if rows}
    assert page.tables.keys() == expected_tables.keys()
    for caption, rows in expected_tables.items():
        _check_table(caption, page.tables[caption], rows)
    return page


def _check_table(caption: str, table: Table, expected: Sequence[Row]) -> None:
    assert len(table.rows) + table.more == len(expected), f"{caption}: {len(table.rows)} rows and {table.more} more"
    assert table.rows, caption
    for heading in expected[0]:
        empty = all(_is_nothing(row[heading]) for row in expected)
        assert empty or heading in table.headings, f"{caption}: has no column {heading}"
    for cells, row in zip(table.rows, expected[: len(table.rows)], strict=True):
        assert len(cells) == len(table.headings)
        for heading, cell in zip(table.headings, cells, strict=True):
            _check_cell(f"{caption}, {heading}", cell, row[heading])


def _check_cell(where: str, cell: Cell, value: object, unit: str = "") -> None:
    said = f"{where}: {cell.text!r} for {value!r}"
    text = cell.text
    if unit:
        assert text.endswith(unit), said
        text = text.removesuffix(unit)
    if isinstance(value, Share):
        assert text.endswith(" %") or value.value is None, said
        value = None if value.value is None else 100 * value.value
        assert text == "–" if value is None else abs(float(text[:-2]) - value) < 0.051, said
    elif value is None:
        assert text == "–", said
    elif isinstance(value, int):
        assert float(text.replace(",", "")) == value, said
    elif isinstance(value, float):
        assert abs(float(text.replace(",", "")) - value) <= max(0.005 * abs(value), 0.00005), said
    else:
        assert text == value, said
    if text in GOOD | BAD | UNSURE:
        colour = "good" if text in GOOD else "bad" if text in BAD else "unsure"
        assert cell.classes == f"status {colour}", f"{said} is {cell.classes}"


def _is_nothing(value: object) -> bool:
    return value is None or value == "" or value == Share(None)


def _runs(tables: Mapping[str, Sequence[Row]]) -> list[dict[str, Any]]:
    if "runs" in tables:
        latency = {
            row["run"]: row for row in tables.get("latency", ()) if row["role"] == "leader" and row["group"] is None
        }
        return [
            {**run, **{name: latency.get(run["run"], {}).get(name) for name in ("p50_ms", "p99_ms")}}
            for run in tables["runs"]
        ]
    renamed = {
        "p50_ms": "first_ms_p50", "p99_ms": "first_ms_p99", "duration_ms": "virtual_ms", "outcome": "status",
        "crashes": "crashes_seen",
    }  # fmt: skip
    return [
        {**line, **{new: line[old] for new, old in renamed.items()}, "skew_ms": (line["skew_ns"] or 0) / 1e6}
        for line in tables["sweep"]
    ]


def _tiles(
    tables: Mapping[str, Sequence[Row]], verdicts: Sequence[Row] | None
) -> Iterator[tuple[str, tuple[object, str, str | None]]]:
    runs = _runs(tables)
    sums = {
        name: sum(run.get(name) or 0 for run in runs)
        for name in ("multicasts", "delivered_messages", "deliveries", "replicas_seen", "replicas_expected")
    }
    if sums["multicasts"] == 0:
        remark = "nothing was multicast"
    elif sums["delivered_messages"] == sums["multicasts"]:
        remark = "all delivered"
    else:
        remark = f"{sums['delivered_messages'] or 'none'} delivered everywhere"
    yield "messages", (sums["multicasts"], "", remark)
    by = f"of {sums['replicas_seen']} of {sums['replicas_expected']} replica{'s' * (sums['replicas_expected'] != 1)}"
    whole = by if sums["replicas_expected"] else ""
    yield "deliveries", (sums["deliveries"], "", whole if sums["deliveries"] else "nothing was delivered")
    if "sweep" in tables:
        bad = [line["status"] for line in tables["sweep"] if line["status"] != "ok"]
        others = ", ".join(f"{bad.count(status)} {status}" for status in sorted(set(bad)))
        yield "runs", (len(tables["sweep"]), "", others or "all ok")
    elif len(runs) != 1:
        yield "runs", (len(runs), "", "")
    if len(runs) == 1 and runs[0]["messages_per_second"] is not None:
        yield "throughput", (runs[0]["messages_per_second"], " /s", None)
    if len(runs) == 1 and runs[0]["p50_ms"] is not None:
        yield "median latency", (runs[0]["p50_ms"], " ms", f"p99 {_rounded(runs[0]['p99_ms'])} ms")
    if verdicts is not None:
        statuses = [_believed(verdict)[0] for verdict in verdicts]
        worst = next((status for status in ("violated", "unknown") if status in statuses), "ok")
        noun = "verdict" if len(statuses) == 1 else "verdicts"
        tally = f"{statuses.count('ok')} of {len(statuses)} {noun} ok"
        if _doubtful(runs, verdicts):
            worst, tally = "unknown" if worst == "ok" else worst, f"{tally}; see the notes"
        yield "verified", (worst, "", tally)
    pauses = [row["recovery_ms"] for row in tables.get("recovery", ()) if row["recovery_ms"] is not None]
    if pauses:
        yield "recovery", (max(pauses), " ms", None)


def _rounded(value: float) -> str:
    """For numbers from 1 to 100."""
    assert 1 <= value < 100
    return f"{value:.2f}"


def _evidence(verdict: Row) -> Evidence:
    return Evidence(**(verdict.get("evidence") or {}))


def _believed(verdict: Row) -> tuple[str, str]:
    """A verdict on something else is not believed either, but that is a matter for `_doubtful`."""
    if verdict["status"] == "ok" and not _evidence(verdict):
        return "unknown", "it says ok, but not on what; verify again"
    return verdict["status"], verdict["reason"]


def _doubtful(runs: Sequence[Row], verdicts: Sequence[Row]) -> bool:
    deliveries = {run["run"]: run["deliveries"] for run in runs}
    pairs = {(verdict["property"], verdict["run"]) for verdict in verdicts}
    wanted = {(verdict["property"], run) for verdict in verdicts for run in deliveries}
    return (
        pairs != wanted
        or not {name for name, _ in pairs} >= set(ALWAYS)
        or any(
            (verdict["status"] == "ok" and not _evidence(verdict))
            or ("evidence" in verdict and _evidence(verdict).deliveries != deliveries[verdict["run"]])
            for verdict in verdicts
        )
    )


def _tables(
    tables: Mapping[str, Sequence[Row]], verdicts: Sequence[Row]
) -> Iterator[tuple[str, Sequence[Mapping[str, Any]]]]:
    runs = _runs(tables)
    one = len(runs) == 1
    varying = [name for name in CONFIG if len({run[name] for run in runs}) > 1]
    yield "Each property, judged from the trace alone", list(_properties(verdicts))
    for verdict in [verdict for verdict in verdicts if verdict.get("counterexample")][:3]:
        caption = f"Counter-example: {verdict['property']} in run {verdict['run']}"
        yield (
            caption,
            [{name: str(value) for name, value in row.items() if name != "run"} for row in verdict["counterexample"]],
        )
    failed = [line for line in tables.get("sweep", ()) if line["status"] != "ok"]
    yield (
        "Rows of the sweep that did not end well",
        [{"run": line["run"], "status": line["status"], "what went wrong": line["error"]} for line in failed],
    )
    if one:
        ordered = sorted(
            tables.get("latency", ()), key=lambda row: (list(ROLES).index(row["role"]), row["group"] or "")
        )
        yield (
            "Latency by group and role",
            [
                {"from the multicast to the": ROLES[row["role"]], "group": row["group"] or "all groups"}
                | {title: row[name] for name, title in LATENCY.items()}
                for row in ordered
            ],
        )
    else:
        short = {"leader": "first", "follower": "last", "optimistic": "optimistic"}
        pooled = sorted(
            tables.get("latency_by_load", ()),
            key=lambda row: (*[row[name] for name in varying], list(ROLES).index(row["role"])),
        )
        yield (
            "Latency by configuration, all seeds together",
            [
                {CONFIG[name]: row[name] for name in varying}
                | {"delivery": short[row["role"]]}
                | {title: row[name] for name, title in LATENCY.items()}
                for row in pooled
            ],
        )
    which = {} if one else {"run": "run"}
    yield (
        "From the crash of a leader to the next message that is new to its group",
        _columns(
            tables.get("recovery", ()),
            {**which, "process": "leader", "group": "group", "crash_ms": "crash at, ms",
             "recovery_ms": "recovery, ms", "recovery_delta": "recovery, δ"},
        ),
    )  # fmt: skip
    yield (
        "First deliveries later than the earliest one of a message to as many groups in the same run: they waited for "
        "other messages (the convoy effect) or for the network",
        list(_delays(tables.get("convoy", ()), {run["run"]: run for run in runs}, varying)),
    )
    guesses = [{**row, "share": Share(row["share"])} for row in tables.get("optimistic", ())]
    yield (
        "Optimistic deliveries that came in another order in the end",
        _columns(
            guesses,
            {**which, "process": "process", "optimistic_deliveries": "optimistic", "deliveries": "deliveries",
             "mistakes": "mistakes", "rollbacks": "rollbacks", "share": "share of mistakes"},
        ),
    )  # fmt: skip
    yield f"Protocol messages by type{'' if one else ', mean over runs'}", list(_sent(tables.get("messages", ()), runs))
    yield (
        "Configuration and totals of each run",
        _columns(
            [row | {"seed": None if row["seed"] is None else str(row["seed"])} for row in runs],
            {"run": "run", **{name: CONFIG[name] for name in varying}, "seed": "seed", "outcome": "outcome",
             "multicasts": "messages", "delivered_messages": "delivered", "deliveries": "deliveries",
             "crashes": "crashes", "duration_ms": "duration, ms", "messages_per_second": "messages/s",
             "p50_ms": "p50, ms", "p99_ms": "p99, ms"},
        ),
    )  # fmt: skip


def _columns(rows: Sequence[Row], titles: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{title: row[name] for name, title in titles.items()} for row in rows]


def _properties(verdicts: Sequence[Row]) -> Iterator[dict[str, Any]]:
    one_run = len({verdict["run"] for verdict in verdicts}) == 1
    for name in dict.fromkeys(verdict["property"] for verdict in verdicts):
        found = [verdict for verdict in verdicts if verdict["property"] == name]
        statuses = [_believed(verdict)[0] for verdict in found]
        worst = next(status for status in ("violated", "unknown", "ok") if status in statuses)
        culprit = found[statuses.index(worst)]
        reason = _believed(culprit)[1]
        said = any("evidence" in verdict for verdict in found)
        rests_on = str(total(map(_evidence, found))) if said else "not said"
        row: dict[str, Any] = {"property": name, "verdict": worst, "rests on": rests_on}
        if not one_run:
            row |= {status: statuses.count(status) for status in ("ok", "unknown", "violated")}
            reason = f"run {culprit['run']}: {reason}" if reason else ""
        yield row | {"why": reason}


def _delays(rows: Sequence[Row], runs: Mapping[str, Row], varying: Sequence[str]) -> Iterator[dict[str, Any]]:
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[(*(runs[row["run"]][name] for name in varying), row["dest_groups"])].append(row)
    for key in sorted(found):
        pooled = found[key]
        samples = sum(row["samples"] for row in pooled)
        late = [row["delayed_over_delta"] for row in pooled]
        yield {
            **{CONFIG[name]: value for name, value in zip(varying, key[:-1], strict=True) if name != "dest_groups"},
            "destinations": key[-1],
            "first deliveries": samples,
            "earliest, ms": min(row["collision_free_ms"] for row in pooled),
            "earliest, δ": min((row["collision_free_delta"] for row in pooled), key=lambda value: value or 0),
            "later than that": Share(sum(row["delayed"] for row in pooled) / samples),
            "by more than δ": Share(None if None in late else sum(late) / samples),
            "mean delay, ms": sum(row["mean_extra_ms"] * row["samples"] for row in pooled) / samples,
        }


def _sent(rows: Sequence[Row], runs: Sequence[Row]) -> Iterator[dict[str, Any]]:
    protocol_of = {run["run"]: run["protocol"] or "" for run in runs}
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        found[protocol_of[row["run"]], row["type"] or "all types"].append(row)
    means = {
        key: tuple(fmean(row[name] for row in of) for name in ("sends_per_multicast", "bytes_per_multicast"))
        for key, of in found.items()
    }
    one = len({protocol for protocol, _ in means}) == 1
    for key in sorted(means, key=lambda key: (key[0], key[1] != "all types", -means[key][0])):
        shown = {} if one else {"protocol": key[0]}
        yield {
            **shown,
            "type": key[1],
            "sent per multicast": means[key][0],
            "bytes per multicast": means[key][1],
        }
