"""Mutants of what nodes, clients and files know and do about members that change."""

from tests.mutants.shell import shell_mutant

MEMBERS = "tests/runtime/test_members.py"
FAULTS = "tests/swarm/test_faults.py"
REFUSES = f"{MEMBERS}::test_what_a_leader_refuses"
ONCE = f"{MEMBERS}::test_a_change_is_agreed_once_and_everybody_knows"
GROUPS = "tests/runtime/test_groups.py"
FIRST_REFUSES = f"{GROUPS}::test_what_the_first_group_refuses"
ADDED = f"{GROUPS}::test_a_group_is_added_once_and_everybody_knows"
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
        ('refuse_addresses(f"g{g}", tuple(members), plaintext=node.config.tls is None)', "pass"), caught_by=REFUSES,
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
    shell_mutant("groups_with_gaps", NODE, ("        if g > there:\n", "        if False:\n"), caught_by=FIRST_REFUSES),
    shell_mutant("seats_of_founders_with_gaps", NODE, ("seats != tuple(range(len(seats)))", "False"),
                 caught_by=FIRST_REFUSES),
    shell_mutant(
        "places_of_founders_need_not_be_said", NODE,
        ("if tuple([place.seat for place in places]) != seats:", "if False:"), caught_by=FIRST_REFUSES,
    ),
    shell_mutant(
        "founders_at_the_place_of_others", NODE,
        ("            self._refuse_addresses(g, places)\n        except (UsageError, ValueError) as error:\n"
         "            return str(error)\n        return \"\"\n\n    def _why_not_found_yet",
         "            pass\n        except (UsageError, ValueError) as error:\n"
         "            return str(error)\n        return \"\"\n\n    def _why_not_found_yet"),
        caught_by=FIRST_REFUSES,
    ),
    shell_mutant(
        "any_group_adds_one", NODE,
        ("if node.me.group != REGISTRAR or g <", "if g <"), caught_by=FIRST_REFUSES,
    ),
    shell_mutant(
        "who_founds_a_group_again_is_told_that_it_is_so", NODE, ("if first[4] == change.about:", "if True:"),
        caught_by=ADDED,
    ),
    shell_mutant("a_client_does_not_count_groups", "amcast.runtime.client",
                 ("        self._there = len(self.config.groups)\n", ""), caught_by=ADDED),
    shell_mutant("requests_to_a_new_group_stay_refused", "amcast.runtime.pulse",
                 ("        if dest[-1] >= there:", "        if dest[-1] >= 2:"), caught_by=ADDED),
    shell_mutant(
        "a_group_comes_while_another_has_no_quorum", NODE, ("if 2 * len(away) >= len(members):", "if False:"),
        caught_by=f"{GROUPS}::test_not_while_a_group_has_no_quorum",
    ),
    shell_mutant(
        "a_group_comes_before_its_replicas", NODE,
        ("if guest is None or pid not in node.incoming.current or not node.pulses.hears(pid):", "if False:"),
        ("if str(guest.peer) != place.peer:", "if guest and str(guest.peer) != place.peer:"),
        ("if reason := node.pulses.refuses(pid):", "if guest and (reason := node.pulses.refuses(pid)):"),
        caught_by=f"{GROUPS}::test_not_before_all_its_replicas_are_there",
    ),
    shell_mutant(
        "others_who_founded_a_group_are_let_in", NODE, ("if member is not None and came and", "if False and"),
        caught_by=f"{GROUPS}::test_who_founded_the_group_elsewhere_is_not_let_in",
    ),
    shell_mutant(
        "a_link_to_others_who_founded_a_group_stays", NODE,
        ("                self._settle(self._guests.pop(pid), member)\n", "                self._guests.pop(pid)\n"),
        caught_by=f"{GROUPS}::test_a_guest_is_parted_from_if_the_group_is_founded_by_others",
    ),
    shell_mutant(
        "a_backup_lacks_a_group", "amcast.runtime.cuts",
        ('return "" if there == wanted else', 'return "" if True else'),
        caught_by=f"{GROUPS}::test_a_backup_is_of_all_groups_or_of_none",
    ),
    shell_mutant(
        "one_number_for_messages_to_other_groups", "amcast.runtime.versions",
        ("return (len(config.groups) - len(config.topology.sizes)) * (LATEST + 1) + number", "return number"),
        caught_by=f"{GROUPS}::test_numbers_stay_what_they_are",
    ),
]  # fmt: skip
