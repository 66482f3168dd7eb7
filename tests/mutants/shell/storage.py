"""Mutants of the log and its snapshots: a sync that is left out, or made too late."""

from tests.mutants.shell import shell_mutant

POWER = "tests/runtime/test_storage_power.py::test_nothing_committed_is_lost_whenever_the_process_or_the_power_ends"
MODULE = "amcast.runtime.storage"
SNAPSHOTS = "amcast.runtime.snapshots"
LARGE = "tests/runtime/test_durability.py::test_a_large_snapshot_holds_up_neither_the_loop_nor_commits"
ROWS = "tests/runtime/test_storage_power.py::test_rows_before_a_snapshot_are_there_after_a_power_cut"
SPACE = "tests/runtime/test_durability.py::test_clients_are_refused_before_the_disk_is_full"
ALONE = "tests/runtime/test_storage.py::test_files_and_folders_belong_to_their_owner_alone"
IDENTITY = (
    "tests/runtime/test_identity.py"
    "::test_damage_to_an_identity_is_not_taken_for_another_cluster_and_a_rejoin_mends_it"
)
PLACES = "tests/runtime/test_storage.py::test_each_part_of_a_snapshot_has_its_place"

MUTANTS = [
    shell_mutant(
        "records_are_not_synced", MODULE,
        ("            self._files.sync(self._segment)\n        except", "        except"),
        caught_by=POWER,
    ),
    shell_mutant(
        "content_of_a_whole_file_is_not_synced", MODULE,
        ("            write_all(self._files, file, data)\n            self._files.sync(file)\n",
         "            write_all(self._files, file, data)\n"),
        caught_by=POWER,
    ),
    shell_mutant(
        "name_of_a_whole_file_is_not_synced", MODULE,
        ("        self._files.replace(temporary, path)\n        self._files.sync_folder(self.folder)\n",
         "        self._files.replace(temporary, path)\n"),
        caught_by=POWER,
    ),
    shell_mutant(
        "name_of_a_segment_is_not_synced", MODULE,
        ("        self._files.sync(self._segment)\n        self._files.sync_folder(self.folder)\n",
         "        self._files.sync(self._segment)\n"),
        caught_by=POWER,
    ),
    shell_mutant(
        "name_of_the_data_folder_is_not_synced", MODULE,
        ("                    self._files.sync_folder(parent)\n", "                    pass\n"),
        caught_by=POWER,
    ),
    shell_mutant(
        "what_a_killed_process_wrote_is_not_synced", MODULE,
        ("        self._files.sync(self._segment)\n        self._files.sync_folder", "        self._files.sync_folder"),
        caught_by=POWER,
    ),
    shell_mutant(
        "old_log_is_removed_before_the_snapshot_is_there", MODULE,
        ("            if not self._saving.write_some():\n                return False\n", ""),
        ("            self._files.sync_folder(self.folder)\n        self._saving = None\n        return True\n",
         "            finished = self._saving.write_some()\n            self._files.sync_folder(self.folder)\n"
         "        self._saving = None if finished else self._saving\n        return finished\n"),
        caught_by=POWER,
    ),
    shell_mutant(
        "content_of_a_snapshot_is_not_synced", SNAPSHOTS,
        ("        self._files.sync(self._file)\n        self._close()\n", "        self._close()\n"),
        caught_by=POWER,
    ),
    shell_mutant(
        "name_of_a_snapshot_is_not_synced", SNAPSHOTS,
        ("        self._files.sync_folder(self._path.parent)\n", ""),
        caught_by="tests/runtime/test_storage.py::test_nothing_is_removed_before_what_replaces_it_is_on_disk",
    ),
    shell_mutant(
        "a_snapshot_has_its_name_before_it_is_whole", SNAPSHOTS,
        ("path.with_name(path.name + UNFINISHED)", "path"),
        ("        self._files.replace(self._unfinished, self._path)\n", ""),
        caught_by=POWER,
    ),
    shell_mutant(
        "parts_of_a_snapshot_may_change_places", SNAPSHOTS,
        ("before = checksum", "before = 0"), ("zlib.crc32(head, self._checksum)", "zlib.crc32(head)"),
        caught_by=PLACES,
    ),
    shell_mutant(
        "a_snapshot_may_lack_its_end", SNAPSHOTS, ("        if magic != PART:\n            break\n", ""),
        ("    at = count = before = 0\n    while True:\n", "    at = count = before = 0\n"
         "    while files.read_at(path, at, 1) or not count:\n"),
        ("    raise StorageCorrupt(f",
         "    if not files.read_at(path, at, 1):\n        return\n    raise StorageCorrupt(f"),
        caught_by=PLACES,
    ),
    shell_mutant(
        "a_commit_that_nobody_can_read", MODULE, ("> LARGEST_FRAME:  # nobody", "> 2**40:  # nobody"),
        caught_by="tests/runtime/test_storage.py::test_commit_that_nobody_could_read_is_refused",
    ),
    shell_mutant(
        "an_unfinished_snapshot_stays_for_ever", MODULE, ("if name.endswith(UNFINISHED):", "if name == UNFINISHED:"),
        caught_by="tests/runtime/test_storage.py"
        "::test_snapshot_that_was_not_finished_harms_nothing_and_is_cleared_away",
    ),
    shell_mutant(
        "commits_wait_for_a_whole_snapshot", "amcast.runtime.durability",
        ("elif self._waiting and (saved or not saving):", "elif self._waiting and not saving:"), caught_by=LARGE,
    ),
    shell_mutant(
        "a_snapshot_waits_for_the_end_of_commits", "amcast.runtime.durability",
        ("        if saving and not self._committing:\n", "        if saving and not self._committing and saved:\n"),
        caught_by=LARGE,
    ),
    shell_mutant(
        "the_state_is_that_of_a_later_time", "amcast.core.application",
        ('    first = next(pieces, b"")', '    first = b""'),
        caught_by="tests/runtime/test_durability.py::test_the_state_is_that_at_the_time_of_the_call",
    ),
    shell_mutant(
        "names_of_the_rows_are_not_synced", "amcast.runtime.history",
        ("            self._disk.sync_folder(self._folder)\n", ""), caught_by=ROWS,
    ),
    shell_mutant(
        "rows_are_not_synced", "amcast.runtime.history",
        ("            self._disk.sync(self._out)\n            self._disk.sync_folder",
         "            self._disk.sync_folder"),
        caught_by=ROWS,
    ),
    shell_mutant(
        "rows_of_a_full_file_are_not_synced", "amcast.runtime.history",
        ("            self._disk.sync(self._out)\n            self._disk.close", "            self._disk.close"),
        caught_by=ROWS,
    ),
    shell_mutant(
        "a_full_disk_is_noticed_by_nobody", "amcast.runtime.durability",
        ("        self.space.measure()\n        if self.storage is None:", "        if self.storage is None:"),
        caught_by=SPACE,
    ),
    shell_mutant(
        "a_disk_with_room_again_stays_full", "amcast.runtime.durability",
        ("call_later(self._limits.measure_every, self._measure_behind)", "call_later(3600, self._measure_behind)"),
        caught_by=SPACE,
    ),
    shell_mutant(
        "alarms_come_and_go", "amcast.runtime.space", ("level + level // 4 if already else level", "level"),
        caught_by=SPACE,
    ),
    shell_mutant(
        "everybody_may_read_the_files", "amcast.runtime.machine", ("else 0), 0o600)", "else 0), 0o644)"),
        caught_by=ALONE,
    ),
    shell_mutant(
        "everybody_may_list_the_folders", "amcast.runtime.machine",
        ("mkdir(mode=0o700, exist_ok=True)\n        except", "mkdir(exist_ok=True)\n        except"), caught_by=ALONE,
    ),
    shell_mutant(
        "damage_to_an_identity_looks_like_another_cluster", "amcast.runtime.identity",
        ("if lines and data != sealed(", "if lines and not data.endswith(b'\\n') and data != sealed("),
        caught_by=IDENTITY,
    ),
    shell_mutant(
        "a_rejoin_stumbles_over_a_damaged_identity", MODULE, ("            if not rejoin:\n", "            if True:\n"),
        caught_by=IDENTITY,
    ),
    shell_mutant(
        "a_rejoin_stumbles_over_a_damaged_count", MODULE, ("< 10) and self._rejoin:", "< 10) and False:"),
        caught_by=IDENTITY,
    ),
]  # fmt: skip
