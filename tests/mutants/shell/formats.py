"""Mutants of how members of two releases go together, and of the raise of the format in use."""

from tests.mutants.shell import shell_mutant

FORMATS = "amcast.runtime.formats"
TESTS = "tests/runtime/test_formats.py"
RAISED = f"{TESTS}::test_the_format_is_raised_when_the_last_member_knows_it"
PART = f"{TESTS}::test_who_can_take_part"
WHEN = f"{TESTS}::test_when_it_is_time"
NOTHING = f"{TESTS}::test_who_has_nothing_goes_by_what_others_say"
REJOIN = f"{TESTS}::test_a_replica_without_its_disk_goes_by_what_is_in_use"
LATE = f"{TESTS}::test_who_has_not_heard_of_the_raise_and_goes_back_is_refused"

SWARM = "tests/swarm/test_faults.py::test_a_cluster_is_upgraded_in_the_middle_of_power_cuts"

MUTANTS = [
    shell_mutant("the_format_is_never_raised", FORMATS,
                 ("        if format <= self.used:\n            return None\n", "        return None\n"),
                 caught_by=SWARM, slow=True),
    shell_mutant("simulated_operators_go_back_behind_the_raise", "amcast.swarm.cluster.faults.upgrades",
                 ("        if any(other is not seat and not other.was_coming for other in world.seats.values()):\n",
                  "        if True:\n"),
                 caught_by=SWARM, slow=True),
    shell_mutant("releases_that_have_no_format_in_common", FORMATS,
                 ("        if ours.newest < theirs.oldest or theirs.newest < ours.oldest:\n", "        if False:\n"),
                 caught_by=PART),
    shell_mutant("who_cannot_read_us_takes_part", FORMATS,
                 ("((name, theirs, me, self.used), (me", "((me"), caught_by=PART),
    shell_mutant("whom_we_cannot_read_takes_part", FORMATS,
                 (", (me, self.knows, name, theirs.used)):", ",):"), caught_by=PART),
    shell_mutant("a_member_is_let_in_whatever_it_knows", "amcast.runtime.links",
                 ("        if reason := self.host.formats.member_greeted(member.pid, member.name, theirs):\n",
                  "        if self.host.formats.member_greeted(member.pid, member.name, theirs) and False:\n"),
                 ("            raise WireError(reason)\n        if reason := self.host.versions",
                  "            pass\n        if reason := self.host.versions"), caught_by=LATE, slow=True),
    shell_mutant("the_format_is_raised_for_those_who_are_here", FORMATS,
                 ("if any(pid not in self._known for pid in others) or not", "if not"),
                 ("        self._known.pop(pid, None)\n", "        pass\n"), caught_by=WHEN),
    shell_mutant("the_newest_that_one_knows", FORMATS, ("format = min([", "format = max(["), caught_by=WHEN),
    shell_mutant("everybody_raises", FORMATS,
                 ("or not (isinstance(process, Electing) and process.leads())", ""), caught_by=WHEN),
    shell_mutant("a_first_start_writes_the_newest", FORMATS,
                 ("described is not None else self.knows.oldest)", "described is not None else self.knows.newest)"),
                 caught_by=NOTHING),
    shell_mutant("a_rejoin_goes_by_what_was_there", FORMATS, ("        if not rejoins:\n", "        if True:\n"),
                 caught_by=NOTHING),
    shell_mutant("what_cannot_be_read_is_gone_by", FORMATS,
                 ("not self.used and self.knows.oldest <= theirs.used <= self.knows.newest", "not self.used"),
                 caught_by=NOTHING),
    shell_mutant("members_go_by_what_others_say", FORMATS,
                 ("        if not self.used and self.knows", "        if self.knows"),
                 caught_by=NOTHING),
    shell_mutant("a_rejoin_hears_of_no_format", FORMATS, ("            self.use(theirs.used)\n", "            pass\n"),
                 caught_by=NOTHING),
    shell_mutant("the_format_goes_back", FORMATS,
                 ("            return\n        self.used = format", "            pass\n        self.used = format"),
                 caught_by=PART),
    shell_mutant("records_stay_in_the_older_format", FORMATS,
                 ("            self._written = self._own.at(format)\n", "            pass\n"),
                 caught_by=f"{TESTS}::test_records_are_put_into_the_format_in_use_and_back"),
    shell_mutant("members_are_spoken_to_in_the_older_format", FORMATS,
                 ("        self._host.engine.speak(format)\n", ""), caught_by=RAISED, slow=True),
    shell_mutant("the_folder_does_not_say_what_is_in_it", "amcast.runtime.durability",
                 ("            self.in_thread(self.storage.describe, self.described.encoded())",
                  "            self.in_thread(lambda: None)"), caught_by=RAISED, slow=True),
    shell_mutant("snapshots_are_in_no_format", "amcast.runtime.node", ("version, self.formats.level)", "version, 3)"),
                 caught_by=REJOIN, slow=True),
    shell_mutant("the_raise_is_given_to_the_application", "amcast.runtime.node", (" or raise_in(m.mid):", ":"),
                 caught_by=f"{TESTS}::test_a_restored_cluster_raises_its_format_anew", slow=True),
    shell_mutant("who_comes_begins_with_the_oldest_format", "amcast.local.membership",
                 ("max([OLDEST, *map(format_of, said)])", "OLDEST"),
                 caught_by=f"{TESTS}::test_a_member_that_comes_begins_with_what_is_in_use", slow=True),
]  # fmt: skip
