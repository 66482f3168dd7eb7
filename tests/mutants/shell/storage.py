"""Mutants of the log and its snapshots: a sync that is left out, or made too late."""

from tests.mutants.shell import shell_mutant

POWER = "tests/runtime/test_storage_power.py::test_nothing_committed_is_lost_whenever_the_process_or_the_power_ends"
MODULE = "amcast.runtime.storage"

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
        ("            self._write_whole(self.folder / f\"snapshot-{n}\", encode_frame(n, [state]))\n", ""),
        ("            self._files.sync_folder(self.folder)\n        except",
         "            self._files.sync_folder(self.folder)\n"
         "            self._write_whole(self.folder / f\"snapshot-{n}\", encode_frame(n, [state]))\n        except"),
        caught_by=POWER,
    ),
]  # fmt: skip
