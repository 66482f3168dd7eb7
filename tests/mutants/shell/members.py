"""Mutants of what nodes, clients and files know and do about members that change."""

from tests.mutants.shell import shell_mutant

MEMBERS = "tests/runtime/test_members.py"
FAULTS = "tests/swarm/test_faults.py"
REFUSES = f"{MEMBERS}::test_what_a_leader_refuses"
ONCE = f"{MEMBERS}::test_a_change_is_agreed_once_and_everybody_knows"
AGREED = f"{MEMBERS}::test_what_is_agreed_on"
NODE = "amcast.runtime.membership"
SEATS = "amcast.runtime.seats"

MUTANTS = [
    shell_mutant(
        "anybody_changes_members", "amcast.runtime.serving",
        ("        if self.grant.operate:\n", "        if True:\n"),
        caught_by=f"{MEMBERS}::test_only_who_may_operate_changes_members",
    ),
    shell_mutant(
        "a_group_may_be_left_without_a_quorum", NODE, ("if len(here) <= len(seats) // 2:", "if not here:"),
        caught_by=f"{MEMBERS}::test_a_group_is_not_left_without_a_quorum",
    ),
    shell_mutant("a_group_may_be_left_without_members", NODE, ("        if not seats:\n", "        if False:\n"),
                 caught_by=REFUSES),
    shell_mutant(
        "who_is_not_there_becomes_a_member", NODE,
        ("if pid not in self._learnt or pid not in node.incoming.current:", "if False:"),
        ("node.history.end - self._learnt[pid]", "node.history.end - self._learnt.get(pid, 0)"), caught_by=REFUSES,
    ),
    shell_mutant(
        "two_members_at_one_address", NODE,
        ("            self._refuse_addresses(g, places)\n", "            pass\n"), caught_by=REFUSES,
    ),
    shell_mutant("places_need_not_be_said", NODE, ("if [place.seat for place in places] != list(seats):", "if False:"),
                 caught_by=REFUSES),
    shell_mutant("a_seat_is_used_again", NODE, ("if seat not in current and seat <= highest]", "if False]"),
                 caught_by=ONCE),
    shell_mutant(
        "who_comes_late_with_another_change_is_told_that_it_is_so", NODE,
        ("if process.seats_in(change.from_epoch + 1) == change.seats:", "if True:"), caught_by=ONCE,
    ),
    shell_mutant("clients_are_not_told", NODE, ("        node.serving.tell_members()\n", ""), caught_by=ONCE),
    shell_mutant("members_are_not_written_down", NODE, ("        self._keep()\n", ""), caught_by=ONCE),
    shell_mutant(
        "links_to_those_who_left_stay", NODE, ("for pid in node.links if pid not in wanted]", "for pid in ()]"),
        caught_by=ONCE,
    ),
    shell_mutant(
        "a_file_that_differs_is_not_noticed", NODE, ("        if first and (line", "        if False and (line"),
        caught_by=ONCE,
    ),
    shell_mutant(
        "a_change_is_given_to_the_application", "amcast.runtime.node",
        (" or is_change(m.mid) or", " or"),
        caught_by=f"{MEMBERS}::test_the_application_sees_no_change",
    ),
    shell_mutant(
        "a_client_that_comes_is_not_told", "amcast.runtime.serving",
        ("welcomed(self) -> None:\n        self.tell_members()\n", "welcomed(self) -> None:\n        ...\n"),
        caught_by=f"{MEMBERS}::test_a_client_that_comes_later_finds_the_members",
    ),
    shell_mutant(
        "a_client_takes_no_long_list_of_members", "amcast.runtime.client_connection",
        ("FrameReader(frames.LARGEST_PEER)", "FrameReader(frames.LARGEST_HELLO)"),
        caught_by=f"{MEMBERS}::test_a_client_comes_after_many_changes",
    ),
    shell_mutant("older_members_are_not_needed", SEATS, ("        if not established:\n", "        if False:\n"),
                 caught_by=AGREED),
    shell_mutant("what_is_known_last_wins", SEATS, ("        if known is None or row[3]:\n", "        if True:\n"),
                 caught_by=AGREED),
    shell_mutant(
        "an_idle_client_loses_sight_of_members", "amcast.runtime.client",
        ("                    connection.connect()\n", "                    pass\n"),
        caught_by=f"{FAULTS}::test_an_idle_client_follows_members_who_are_all_replaced",
    ),
    shell_mutant(
        "a_client_reads_the_members_only_at_its_start", "amcast.runtime.client",
        ("                if agreed is not None:\n", "                if False:\n"),
        caught_by=f"{FAULTS}::test_a_client_that_was_cut_off_finds_new_members_in_a_file",
    ),
    shell_mutant("members_of_another_cluster", SEATS, ("agreed.cluster != config.name", "False"), caught_by=AGREED),
]  # fmt: skip
