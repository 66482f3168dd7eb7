"""Mutants of the readers of traces: files, lines and values that are passed over."""

from tests.mutants.shell import shell_mutant

TEXT = "tests/test_tracefile.py"
FOLDER = "tests/test_tracefile_folder.py"
PLACES = "tests/spark/test_places.py"

MUTANTS = [
    shell_mutant(
        "folders_inside_a_kind_are_passed_over", "amcast.tracefile.reader",
        ('if file.suffix != ".parquet" or file.is_dir() or', 'if file.suffix != ".parquet" or'),
        caught_by=f"{FOLDER}::test_what_does_not_belong_to_a_trace_is_named[kind=deliver/sub.parquet/part-1.parquet]",
    ),
    shell_mutant(
        "any_suffix_is_a_part", "amcast.tracefile.reader",
        ('if file.suffix != ".parquet" or file.is_dir() or', "if file.is_dir() or"),
        caught_by=f"{FOLDER}::test_what_does_not_belong_to_a_trace_is_named[kind=deliver/part-1]",
    ),
    shell_mutant(
        "files_beside_the_kinds_are_parts", "amcast.tracefile.reader",
        (" or (of_folder is None and len(by_kind) > 1):", ":"),
        caught_by=f"{FOLDER}::test_what_does_not_belong_to_a_trace_is_named[part-1.parquet]",
    ),
    shell_mutant(
        "an_underscore_hides_what_spark_reads", "amcast.tracefile.reader",
        (' or "=" in entry.name]', "]"),
        caught_by=f"{FOLDER}::test_what_does_not_belong_to_a_trace_is_named[kind=deliver/_day=1.parq]",
    ),
    shell_mutant(
        "a_null_in_a_list_is_a_name", "amcast.tracefile.reader",
        ("if column.flatten().null_count:", "if False:"),
        caught_by=f"{FOLDER}::test_a_null_in_a_list",
    ),
    shell_mutant(
        "renaming_passes_over_strangers", "amcast.tracefile.reader",
        ("_read_parquet(files, columns))",
         '_read_parquet([(file, "deliver") for file in trace.rglob("*-0.parquet")], columns))'),
        caught_by=f"{FOLDER}::test_nor_to_one_with_other_names",
    ),
    shell_mutant(
        "what_no_record_names_counts", "amcast.tracefile.reader",
        (" or file.stem in counts", " or True"),
        caught_by=f"{PLACES}::test_what_no_record_names_does_not_count_and_goes_at_the_end",
    ),
    shell_mutant(
        "every_attempt_counts", "amcast.tracefile.commits",
        ("found.setdefault(batch_of(part), part)", "found[part] = part"),
        caught_by=f"{PLACES}::test_what_no_record_names_does_not_count_and_goes_at_the_end",
    ),
    shell_mutant(
        "the_record_comes_first", "amcast.spark.row",
        ("    for kind in KINDS:\n        file = folder",
         '    write_lines(lines, folder / LINE)\n'
         '    publish(folder / LINE, output.out / RUNS / f"{part}.parquet")\n'
         "    for kind in KINDS:\n        file = folder"),
        caught_by=f"{PLACES}::test_a_batch_whose_trace_cannot_be_written_is_not_done",
    ),
    shell_mutant(
        "a_trace_may_change", "amcast.tracefile.parts",
        ("if error is None and self._expected not in (None, stamp(self._path)):", "if False:"),
        ("if self._expected not in (None, stamp(self._path)):", "if False:"),
        caught_by=f"{PLACES}::test_a_trace_that_changes_while_it_is_read_is_one_line",
    ),
    shell_mutant(
        "credentials_in_a_uri_are_used", "amcast.places",
        ('if "@" in address.partition("/")[0]:', "if False:"),
        caught_by=f"{PLACES}::test_credentials_in_a_uri_are_refused",
    ),
    shell_mutant(
        "any_bucket_is_there", "amcast.places", ("    if not found:", "    if False:"),
        caught_by=f"{PLACES}::test_a_bucket_that_is_not_there",
    ),
    shell_mutant(
        "short_lines_are_padded", "amcast.tracefile.text",
        ("if len(cells) != self._count:", "cells += [''] * (self._count - len(cells))\n        if False:"),
        caught_by=f"{TEXT}::test_csv_that_does_not_hold_together",
    ),
    shell_mutant(
        "integers_as_python_writes_them", "amcast.tracefile.text",
        ("if not _INTEGER.fullmatch(cell):", "if not cell.replace('_', '').isdigit():"),
        caught_by=f"{TEXT}::test_a_bad_cell_of_a_csv_row",
    ),
    shell_mutant(
        "a_group_may_be_left_out", "amcast.tracefile.text",
        ('if row.group is msgspec.UNSET and row.kind in ("deliver", "optdeliver"):', "if False:"),
        caught_by=f"{FOLDER}::test_columns_of_json_that_swap_names_or_are_left_out",
    ),
]  # fmt: skip
