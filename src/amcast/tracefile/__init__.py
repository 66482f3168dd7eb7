"""Traces as files: Parquet folders written by drivers, and hand-written `.jsonl` or `.csv` files.

The columns are those of `amcast.core.trace.COLUMNS`; a column that an event does not use is null. The forms:

- a folder `<trace>/kind=<kind>/*.parquet` (what `ParquetRecorder` writes), or a folder of `.parquet` files or a single
  one with a `kind` column. `dest` and `about` are list<string>, `ts` is struct<time: int64, tie: string>.
- `.jsonl`: one object per line, null columns left out. Lists are arrays, `ts` is {"time": 7, "tie": "m1"} or [7, "m1"].
- `.csv` with a header line: an empty cell is null, `dest` and `about` are separated by `;`, `ts` is `7;m1`. All three
  may also be written as in JSON, which is how a list element that contains a `;` is written.

`read_events` gives the events of any of these in the order of the file, and a folder kind by kind: whoever needs the
history of a process sorts by `seq`.
"""

from amcast.tracefile.out import prepare_out
from amcast.tracefile.reader import read_events
from amcast.tracefile.text import write_csv, write_jsonl
from amcast.tracefile.writer import ParquetRecorder

__all__ = ["ParquetRecorder", "prepare_out", "read_events", "write_csv", "write_jsonl"]
