"""Mutants of the log and its snapshots: a sync that is left out or made too late, a loss that nobody misses."""

from tests.mutants.shell import shell_mutant

POWER = "tests/runtime/test_storage_power.py::test_nothing_committed_is_lost_whenever_the_process_or_the_power_ends"
MODULE = "amcast.runtime.storage"
SNAPSHOTS = "amcast.runtime.snapshots"
LARGE = "tests/runtime/test_durability.py::test_a_large_snapshot_holds_up_neither_the_loop_nor_commits"
ROWS = "tests/runtime/test_storage_power.py::test_rows_before_a_snapshot_are_there_after_a_power_cut"
SPACE = "tests/runtime/test_durability.py::test_clients_are_refused_before_the_disk_is_full"
ALONE = "tests/runtime/test_storage.py::test_files_and_folders_belong_to_their_owner_alone"
IDENTITY = (
    "tests/runtime/test_identity.py::test_damage_to_an_identity_is_not_taken_for_another_cluster_and_a_rejoin_mends_it"
)
PLACES = "tests/runtime/test_storage.py::test_each_part_of_a_snapshot_has_its_place"

SECTORS = "amcast.runtime.sectors"
DAMAGE = "tests/runtime/test_storage_power.py"
LOST = f"{DAMAGE}::test_each_lost_file_each_two_and_each_three_are_missed"
CUT = f"{DAMAGE}::test_each_file_cut_anywhere_is_refused_or_harms_nothing"
TAIL = "tests/runtime/test_storage.py::test_what_no_torn_frame_leaves_is_refused"

MUTANTS = [
    shell_mutant(
        "what_must_be_saved_is_not_if_it_is_large", "amcast.runtime.durability",
        ("snapshot = None if large and not self._must_save else", "snapshot = None if large else"),
        caught_by="tests/runtime/test_durability.py::"
        "test_a_large_state_of_another_member_is_written_before_a_node_stops",
    ),
    shell_mutant(
        "records_are_not_synced", MODULE,
        ("            self._files.sync(self._segment)\n", ""),
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
        "name_of_the_data_folder_is_not_synced", MODULE,
        ("                    self._files.sync_folder(parent)\n", "                    pass\n"),
        caught_by=POWER,
    ),
    shell_mutant(
        "last_frame_is_believed_as_it_was_found", MODULE,
        ("            self._begin_segment(number, sectors.encode_frame(number, last))\n",
         "            self._begin_segment(number + 1)\n"),
        caught_by=f"{DAMAGE}::test_what_a_failed_sync_left_in_memory_is_not_taken_for_durable",
    ),
    shell_mutant(
        "an_empty_segment_hides_the_frames_before_it", MODULE, ("if later > self._first:", "if later < 0:"),
        caught_by=POWER,
    ),
    shell_mutant(
        "a_flipped_bit_is_taken_for_a_torn_write", MODULE,
        ("        if damaged is not None:\n", "        if damaged is not None and after != ENDLESS:\n"),
        caught_by=f"{DAMAGE}::test_each_flipped_bit_is_refused_or_harms_nothing",
    ),
    shell_mutant(
        "a_torn_write_is_taken_for_damage", SECTORS, ("data[place : place + SECTOR] != NOTHING and ", ""),
        caught_by=POWER,
    ),
    shell_mutant(
        "a_sector_may_be_anywhere", SECTORS,
        (" and rest[: PLACE.size] == PLACE.pack(\n        place, number\n    )", ""),
        caught_by=TAIL,
    ),
    shell_mutant(
        "sectors_of_later_frames_are_torn_writes", SECTORS,
        ("not is_sector(data, place, index, number)",
         "not any(is_sector(data, place, index, n) for n in range(number, number + 9))"),
        caught_by=TAIL,
    ),
    shell_mutant(
        "a_folder_needs_no_seal", MODULE,
        ("            seal = seal_in(self._read(\"seal\"))\n",
         "            seal = seal_in(self._read(\"seal\")) or Seal()\n"),
        caught_by=LOST,
    ),
    shell_mutant(
        "a_lost_segment_is_not_missed", MODULE, ("if max(segments, default=-1) < seal.segment:", "if False:"),
        caught_by=LOST,
    ),
    shell_mutant(
        "a_lost_snapshot_is_not_missed", MODULE, ("if self._newest < seal.snapshot:", "if False:"),
        caught_by=f"{DAMAGE}::test_what_is_damaged_in_identity_or_starts_is_repaired_by_a_rejoin",
    ),
    shell_mutant(
        "a_lost_end_is_not_missed", MODULE, ("if self.next_frame <= seal.frame:", "if False:"), caught_by=CUT,
    ),
    shell_mutant(
        "frames_are_not_recorded_in_the_seal", MODULE,
        ("            self._append(self._seal, record_of(self.next_frame))\n", ""), caught_by=CUT,
    ),
    shell_mutant(
        "the_number_of_starts_may_be_any", MODULE, ("and text == starts_text(int(number)):", "and True:"),
        caught_by=f"{DAMAGE}::test_each_flipped_bit_is_refused_or_harms_nothing",
    ),
    shell_mutant(
        "a_damaged_number_of_starts_stops_a_rejoin", MODULE,
        ("        if self.rejoining:\n            return 1\n", ""),
        caught_by=f"{DAMAGE}::test_what_is_damaged_in_identity_or_starts_is_repaired_by_a_rejoin",
    ),
    shell_mutant(
        "a_folder_without_identity_is_new", MODULE,
        ("        if found:\n            raise", "        if False:\n            raise"),
        caught_by=f"{DAMAGE}::test_folder_that_lost_its_identity_is_not_a_new_one",
    ),
    shell_mutant(
        "a_frame_is_written_in_two_calls", MODULE,
        ("        if self._files.write(file, data) < len(data):\n",
         "        if write_all(self._files, file, data):  # type: ignore[func-returns-value]\n"),
        caught_by="tests/runtime/test_storage.py::test_frame_is_written_in_one_call_or_not_at_all",
    ),
    shell_mutant(
        "a_descriptor_is_closed_twice", MODULE,
        ("        file, self._segment = self._segment, -1  # in", "        file = self._segment  # in"),
        caught_by="tests/runtime/test_storage.py::test_what_was_closed_is_not_closed_again",
    ),
    shell_mutant(
        "only_a_marker_says_that_a_rejoin_is_not_done", MODULE,
        ("self._first, _ = WITH_A_STATE", "self._first, _ = Seal()"),
        caught_by=f"{DAMAGE}::test_a_rejoin_that_is_cut_short_is_not_taken_for_a_replica_that_promised_nothing",
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
        ("    raise damaged(path, f",
         "    if not files.read_at(path, at, 1):\n        return\n    raise damaged(path, f"),
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
        ("            self._disk.sync(self._out)\n            file, self", "            file, self"),
        caught_by=ROWS,
    ),
    shell_mutant(
        "a_file_of_rows_is_closed_twice", "amcast.runtime.history",
        ("file, self._out = self._out, -1", "file = self._out"),
        caught_by="tests/runtime/test_storage.py::test_what_was_closed_is_not_closed_again",
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
        "a_rejoin_stumbles_over_a_damaged_identity", MODULE,
        ("            if not rejoin:\n                raise\n", "            raise\n"),
        caught_by=IDENTITY,
    ),
]  # fmt: skip
