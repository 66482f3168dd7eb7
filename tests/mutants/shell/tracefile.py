"""Mutants of the readers of traces: files, lines and values that are passed over."""

from tests.mutants.shell import shell_mutant

TEXT = "tests/test_tracefile.py"
FOLDER = "tests/test_tracefile_folder.py"

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
        ("_read_parquet(files_of_folder(trace, kind_column), columns)",
         '_read_parquet([(file, "deliver") for file in trace.rglob("*-0.parquet")], columns)'),
        caught_by=f"{FOLDER}::test_nor_to_one_with_other_names",
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
