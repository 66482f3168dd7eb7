"""Reads what 'amcast verify' writes: the verdicts, of which trace they are, and what was asked for.

Verdicts may be shown only beside the trace that they are about. Runs of the same name with as many deliveries may still
differ, so the file holds a digest of the whole trace.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from amcast.checks import ALWAYS, known_properties
from amcast.checks.evidence import NOTHING, Evidence
from amcast.errors import UsageError
from amcast.places import Place, one_line, place_of

STATUSES: Final = ("ok", "unknown", "violated")  # the worst last
WRITTEN: Final = (
    "verdicts.json",
    "verdicts.parquet",
    "counterexamples.parquet",
    "violation.svg",
)  # by 'amcast verify --out', perhaps into the trace's folder
OTHER_TRACE: Final = "these verdicts are of another trace: verify again"
NO_TRACE: Final = "these verdicts do not say of which trace they are: verify again"
EXPECTED: Final = "expected what 'amcast verify --json' prints"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of a file, or those found a moment ago about the trace at hand."""

    rows: Sequence[Row]
    properties: Sequence[str] | None = None  # None: all that atomic multicast promises was asked for
    doubt: str = ""  # why they may be of another trace

    @property
    def asked(self) -> Sequence[str]:
        return ALWAYS if self.properties is None else self.properties


def digest_of(trace: str | Place, columns: Mapping[str, str] | None = None) -> str | None:
    """Return the digest of a trace, read with these columns; None if there is no such file or folder.

    Raises UsageError if it cannot be read.
    """
    path = place_of(trace)
    if not path.exists():
        return None
    found = hashlib.blake2b(json.dumps(sorted((columns or {}).items())).encode(), digest_size=32)
    try:
        for name, file in [("", path)] if path.is_file() else sorted(_files(path)):
            content = _hash_of(file)
            found.update(json.dumps([name, content]).encode())
    except OSError as error:
        raise UsageError(f"{error.filename or trace}: cannot be read ({one_line(error)}); check the trace") from error
    return found.hexdigest()


def _hash_of(file: Place) -> str:
    content = hashlib.blake2b()
    with file.open("rb") as stream:
        while some := stream.read(1 << 20):
            content.update(some)
    return content.hexdigest()


def _files(folder: Place) -> Iterator[tuple[str, Place]]:
    """Yield the files that an engine reads."""
    if not isinstance(folder, Path):
        for found in folder.rglob("*"):
            if found.is_file() and not found.name.startswith((".", "_")) and found.name not in WRITTEN:
                yield found.relative_to(folder).as_posix(), found
        return
    for place, _, names in os.walk(folder, followlinks=True):
        for name in names:
            if not name.startswith((".", "_")) and name not in WRITTEN:
                file = Path(place, name)
                yield file.relative_to(folder).as_posix(), file


def read_verdicts(path: Place, trace: Place | None, columns: Mapping[str, str] | None = None) -> Verdicts:
    """Read the verdicts of a file. They carry a doubt if they are not of this trace. Raises UsageError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({one_line(error)}); {EXPECTED}") from error
    except (ValueError, RecursionError):
        raise UsageError(f"{path}: holds no verdicts; {EXPECTED}") from None
    rows = document.get("verdicts") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"{path}: holds no verdicts; {EXPECTED}")
    for number, row in enumerate(rows, start=1):
        if wrong := _wrong(row):
            raise UsageError(f"{path}: verdict {number} {wrong}; {EXPECTED}")
    asked = document.get("properties")
    if asked is not None and not (isinstance(asked, list) and all(isinstance(name, str) for name in asked)):
        raise UsageError(f"{path}: its properties are no list of names; {EXPECTED}")
    try:
        known_properties([row["property"] for row in rows])
        properties = None if asked is None else known_properties(asked)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    said, here = document.get("digest"), None if trace is None else digest_of(trace, columns)
    doubt = NO_TRACE if said is None else "" if said == here else OTHER_TRACE
    return Verdicts(rows, properties, doubt)


def _wrong(row: object) -> str:
    """Say what cannot be shown of a verdict; empty if all can."""
    if not isinstance(row, dict):
        return "is not one"
    for name in ("property", "run", "status"):
        if not isinstance(row.get(name), str):
            return f"has no {name}"
    if row["status"] not in STATUSES:
        return f"has the status {row['status']!r}"
    if not isinstance(row.get("reason") or "", str):
        return "has a reason that is no text"
    if not isinstance(row.get("figure") or {}, dict):
        return "has a figure that is no table"
    evidence = row.get("evidence") or {}
    if not isinstance(evidence, dict) or not all(type(value) is int and value >= 0 for value in evidence.values()):
        return "has evidence that is no table of counts"
    example = row.get("counterexample") or []
    if not isinstance(example, list) or not all(isinstance(event, dict) for event in example):
        return "has a counterexample that is no list of rows"
    return ""


def evidence_in(row: Row) -> Evidence:
    """Return what a verdict says that it rests on."""
    found = row.get("evidence") or {}
    known = {part.name for part in fields(Evidence)}
    return Evidence(**{name: value for name, value in found.items() if name in known}) if found else NOTHING
