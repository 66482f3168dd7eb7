"""What of a sweep counts: the files of parts whose record is there.

A part is what one task wrote: `trace/kind=<kind>/<part>.parquet` and, last of all, `runs/<part>.parquet`, its record.
It is named after its batch of rows and the attempt, so two attempts never touch each other's files, and nothing has to
be renamed where it is stored. Of two parts of a batch the first by name counts. `_SUCCESS` lists the parts of a
complete sweep, so one that arrives later does not count either.
"""

import json
import re
from collections.abc import Iterable
from typing import Final

from amcast.places import Place

SPEC: Final = "spec.json"
SUCCESS: Final = "_SUCCESS"
RUNS: Final = "runs"
TRACE: Final = "trace"
_ATTEMPT: Final = re.compile("-[0-9a-f]{8}$")


def batch_of(part: str) -> str:
    """Return the batch that a part is of; parts of older versions are named after their run."""
    return _ATTEMPT.sub("", part)


def records_in(sweep: Place) -> list[str]:
    """List the parts that have a record."""
    names = [file.name for file in (sweep / RUNS).iterdir()] if (sweep / RUNS).is_dir() else []
    return sorted(name.removesuffix(".parquet") for name in names if name.endswith(".parquet") and name[0] != ".")


def first_of_each_batch(parts: Iterable[str]) -> dict[str, str]:
    """Return the part that counts of each batch."""
    found: dict[str, str] = {}
    for part in sorted(parts):
        found.setdefault(batch_of(part), part)
    return found


def parts_that_count(sweep: Place) -> list[str]:
    """List the parts of a sweep, each batch once."""
    manifest = sweep / SUCCESS
    said = manifest.read_text() if manifest.is_file() else ""
    return list(json.loads(said)["parts"]) if said else list(first_of_each_batch(records_in(sweep)).values())


def sweep_of(trace: Place) -> Place | None:
    """Return the sweep that a folder is the trace of, if it is one."""
    return trace.parent if trace.name == TRACE and (trace.parent / SPEC).is_file() else None
