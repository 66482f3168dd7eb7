"""`report`: one HTML page about a trace or a sweep, with its tables as CSV and its plots as PNG in a folder beside it.

The page shows the tables of `amcast.spark.metrics`, what became of each row of a sweep, and the verdicts on a trace
that was verified (`amcast verify --json` in `verdicts.json`). Nothing is written into the folder that the report is
about: `run1` gets `run1-report.html` and `run1-report/`.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from amcast import __version__
from amcast.checks.evidence import NOTHING, Evidence
from amcast.checks.verdict_file import Verdicts, read_verdicts
from amcast.errors import UsageError
from amcast.places import Place, Remote, one_line
from amcast.report import page
from amcast.report.plots import Picture
from amcast.report.sections import Material, lead, sections, subtitle, title
from amcast.report.verdicts import summary
from amcast.tracefile.columns import Columns
from amcast.tracefile.commits import SUCCESS
from amcast.tracefile.out import usable_folder, whole_folder, write_whole


@dataclass(frozen=True)
class Report:
    """Where a report is, and what its reader should know."""

    page: Place
    folder: Place
    notes: tuple[str, ...] = field(default=())
    evidence: Evidence = NOTHING  # that its numbers rest on
    doubts: tuple[str, ...] = ()  # why it cannot be taken for what it seems to say: nothing to see, verdicts on others
    verified: str = ""  # in one line; empty: there are no verdicts


def report(
    source: Place,
    out: Place | None = None,
    *,
    verdicts: Sequence[Mapping[str, Any]] | Place | None = None,
    columns: Columns | None = None,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Report:
    """Write the report on `source`, a trace or the folder of a sweep. Raises UsageError.

    `verdicts` is the file that `amcast verify --json` wrote. By default it is `verdicts.json` in the folder, or
    `<folder>-verdicts.json` beside it, if there is one. They may also be dictionaries: those are taken to be about this
    trace, while a file is compared with it. `columns` maps the columns of another system.
    """
    if isinstance(source, Path):
        source = Path(os.path.normpath(source))
    trace, lines, spec = contents(source)
    place = (
        out if out is not None else source.with_name(f"{source.stem if source.is_file() else source.name}-report.html")
    )
    folder = place.with_suffix("")
    refuse_place(place, folder)
    judged = verdicts_on(trace, source, verdicts, columns)
    tables: dict[str, pa.Table] = {}
    notes: tuple[str, ...] = ()
    if trace is not None:
        from amcast.spark.metrics import collect_from

        found = collect_from(str(trace), columns=columns, master=master, settings=settings)
        tables, notes = found.tables, found.notes
    if lines is not None:
        tables = {"sweep": lines, **tables}
    return write_report(Material(source, tables, notes, judged, spec), place, folder)


def write_report(material: Material, place: Place, folder: Place) -> Report:
    """Write the page at `place`, and its tables and plots into `folder`."""
    pictures: list[Picture] = []
    parts = sections(material, pictures, folder.name)
    footer = f"amcast {__version__} · {material.source} · tables (CSV) and plots (PNG) are in {folder.name}/"
    text = page.document(title(material), subtitle(material), lead(material), parts, footer)
    write(place, folder, text, material.tables, pictures)
    given = material.verdicts
    verified = "" if given is None else summary(given, material.judged, material.deliveries)
    return Report(place, folder, tuple(material.notes), material.evidence, tuple(material.doubts), verified)


def contents(source: Place) -> tuple[Place | None, pa.Table | None, dict[str, Any]]:
    """Return the trace and, of a sweep, the lines of its runs and its specification."""
    if not source.exists():
        raise UsageError(f"{source}: does not exist; expected a trace or the folder of a sweep; check the path")
    if not (source / "runs").is_dir():
        return source, None, {}
    from amcast.spark.sweep import read_runs

    try:
        lines = read_runs(source)
        spec = json.loads((source / "spec.json").read_text()) if (source / "spec.json").exists() else {}
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UsageError(f"{source}: the sweep cannot be read ({one_line(error)}); run the sweep again") from error
    if lines.num_rows == 0:
        raise UsageError(f"{source}: is a sweep of which no row is done; expected some; run the sweep")
    trace = source / "trace"
    return (trace if trace.is_dir() else None), lines, spec if isinstance(spec, dict) else {}


def verdicts_on(
    trace: Place | None, source: Place, verdicts: Sequence[Mapping[str, Any]] | Place | None, columns: Columns | None
) -> Verdicts | None:
    """Return the verdicts on the trace. None means that there are none to read, which differs from an empty list."""
    if verdicts is None:
        places = [source / "verdicts.json", source.with_name(f"{source.name}-verdicts.json")]
        verdicts = next((place for place in places if place.is_file()), None)
    if verdicts is None or not isinstance(verdicts, Path | Remote):
        return None if verdicts is None else Verdicts(verdicts)
    return read_verdicts(verdicts, trace, columns)


def refuse_place(place: Place, folder: Place) -> None:
    """Raise UsageError unless the place is free or holds an older report."""
    with usable_folder(folder, "tables and plots") as entries:
        if place.suffix != ".html":
            raise UsageError(f"{place}: expected a name that ends in .html; choose another --out")
        if place.is_dir() or (place.exists() and page.MARK not in place.read_text(errors="replace")[:2000]):
            raise UsageError(f"{place}: exists and is not a report; choose another --out")
        stranger = next((entry for entry in entries if not is_ours(entry)), None)
        if stranger is not None:
            raise UsageError(f"{folder}: holds {stranger.name}, which is not of a report; choose another --out")


def is_ours(entry: Place) -> bool:
    from amcast.spark.metric_tables import TABLES

    if entry.name == SUCCESS:
        return True
    if entry.is_symlink() or not entry.is_file():
        return False
    return entry.suffix == ".png" or (entry.suffix == ".csv" and entry.stem in (*TABLES, "sweep"))


def write(place: Place, folder: Place, text: str, tables: Mapping[str, pa.Table], pictures: Sequence[Picture]) -> None:
    """Write the folder and the page, each of them whole or not at all."""
    try:
        if isinstance(place, Remote):
            place.unlink(missing_ok=True)  # the page says that its folder is whole
        with whole_folder(folder) as unfinished:
            for name, table in tables.items():
                pyarrow.csv.write_csv(flat(table), unfinished / f"{name}.csv")
            for picture in pictures:
                (unfinished / f"{picture.name}.png").write_bytes(picture.png)
        write_whole(place, text)
    except OSError as error:
        raise UsageError(f"{place}: the report cannot be written ({one_line(error)}); choose another --out") from error


def flat(table: pa.Table) -> pa.Table:
    """Write lists and structs as JSON, which CSV does not have."""
    columns = [
        pa.array([None if value is None else json.dumps(value) for value in column.to_pylist()], pa.string())
        if pa.types.is_nested(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)
