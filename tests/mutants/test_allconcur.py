# ruff: noqa: E501
"""Every guard of the AllConcur family, broken one at a time."""

import sys

import pytest

from amcast.core.protocol import Protocol
from amcast.protocols import lcr, protocol
from amcast.protocols.allconcur import (
    allconcur,
    allconcur_plus,
    allgather,
    ballots,
    durable_rounds,
    overlay,
    past,
    round_records,
    rounds,
    votes,
)
from amcast.protocols.allconcur import membership as joining
from amcast.protocols.allconcur import messages as allconcur_messages
from amcast.protocols.parts import failure_detectors
from amcast.swarm.adversary.seeds import judge_adversary
from tests.mutants import CRASHES, Mutant, caught_by_swarm, load, mutant, replace
from tests.protocols.test_durable_rounds import STEPS
from tests.scenarios import test_allconcur as scenarios

SEEDS = range(80)

ALLGATHER = [
    mutant("no_relay", ("        if children:\n            self.send(children, msg)\n\n    def broadcast", "\n    def broadcast")),
    mutant("early_message_dropped", ("                self.next.append(msg)", "                pass")),
    mutant("early_message_at_once", ("            if msg.r > self.r:", "            if False:")),
    mutant("silent_without_load", ("                self.broadcast()\n                self.try", "                self.try")),
    mutant("what_waits_is_forgotten", ("            if postponed or self.queue:", "            if postponed:")),
    mutant("by_arrival", ("            for msg in self.received:\n", "            for msg in self.received[self.pid :] + self.received[: self.pid]:\n")),
]  # fmt: skip

TRACKING = [
    mutant("owner_may_have_it", ("        new = successors[p] & ~owners & ~visited", "        new = successors[p] & ~visited")),
    mutant("failed_means_lost", ("        if owners is None:\n            alive = True\n            continue\n", "        if owners is None:\n            continue\n")),
    mutant("no_expansion", ("        visited |= new\n        todo |= new\n", "")),
    mutant("early_detector_not_deaf", ("        self.deaf[p] = True\n        self.on_fail", "        self.on_fail")),
    mutant("silent_member_kept", ("            self.end_eon(self.reconfiguration if agreed else self.members, missing)", "            self.end_eon(self.reconfiguration if agreed else self.members, [])")),
    mutant("notification_not_passed_on", ("        self.send(self.successors, msg)  # l.45\n", "")),
    mutant("reliable_not_passed_on", ("            self.send(self.successors, msg)  # l.40\n", "            pass\n")),
]  # fmt: skip

# Since a removal ends the eon, no crash shows whether completion is tried again, or a stash or a marker of another state
# is kept: with P these three guards of the paper have no mutant.
PLUS = [
    mutant("previous_round_delivered_again", ("        self.prev = None  # l.73\n", "")),
    mutant("own_message_redrawn", ("        own = self.own.get(self.r)\n        if own is None:\n            own = (self.take", "        own = None\n        if own is None:\n            own = (self.take")),
    mutant("delivered_when_complete", ("        self.prev = self.m  # l.62\n", "        self.deliver_round(self.m)\n        self.prev = self.m\n")),
    mutant("last_round_never_delivered", ("        return self.reliable or loaded(self.prev) or loaded(self.held)", "        return self.reliable")),
    mutant("no_rollback", ("        if self.prev is not None:\n            self.r -= 1\n", "")),
    mutant("skip_delivers_nothing", ("        self.release(prev)  # l.33-34\n", "")),
    mutant("stash_lost", ("            if not self.stash or not holds_reliable(self.stash):  # l.20\n                self.stash[msg.origin] = msg", "            pass")),
    mutant("no_marker", ("                self.marker = r\n                self.send(self.successors, Eon(self.eon, r))\n", "")),
    mutant("early_messages_of_an_eon_lost", ("            self.early.append((sender, msg))", "            pass")),
    mutant("newcomers_without_a_past", ("                self.deliver_once(m)\n                if sender_of", "                if sender_of")),
    mutant("past_of_several_members", ("        if self.eon > 0 or msg.first != len(self.log):", "        if self.eon > 0:")),
    mutant("joins_before_it_has_all", ("        if len(self.log) >= msg.past:\n            self.enter_if_same", "        if True:\n            self.enter")),
    mutant("hands_out_what_is_not_stable", ("        end = self.stable\n", "        end = len(self.log)\n")),
    mutant("welcome_of_one", ("        if 2 * len([other for other in self.welcomes.values() if other == msg]) <= msg.old:\n            return", "        if False:\n            return")),
    mutant("digraph_never_repaired", ("        self.first = members\n", "        self.first = self.first if set(members) < set(self.first) else members\n")),
    mutant("own_pause_is_others_silence", ("        if missed > 0:\n", "        if False:\n")),
    mutant("goes_on_though_nobody_hears_it", ('        return "heard by nobody" if here and not here & ~self.notices.get(self.pid, 0) else ""', '        return ""')),
    mutant("goes_on_though_it_hears_nobody", ('            return "hears nobody"\n', '            return ""\n')),
    mutant("less_than_half_goes_on", ("        return 2 * len(missing) < len(self.members) and self.all_lost(missing)", "        return self.all_lost(missing)")),
    mutant("goal_of_nobody", ("        if msg.goal and msg.goal == self.log.prefix(self.before_eon):\n            end = max(end, self.before_eon)\n", "")),
    mutant("no_sign_of_life_before_it_enters", ("        self.successors = overlay_of(msg.members, msg.members, self.replicas).successors[self.pid]\n", "")),
    mutant("asks_once", ("            if self.had == len(self.log):\n                self.ask_another()\n", "            pass\n")),
    mutant("proposal_of_an_older_eon", ("        self.wanted = ()  # was meant", "        pass  # was meant")),
    mutant("leaving_asked_once", ("            if self.leaves:\n                self.on_leave_group()\n", "            pass\n")),
    mutant("twice_for_a_client", ("            if self.done.contains(m.mid):\n                return\n", "")),
]  # fmt: skip

UNIFORM = [
    mutant("not_held", ("            if self.uniform:", "            if False:")),
    mutant("held_not_released", ("            self.held = None\n            self.release(held)\n        self.try_to", "            self.held = None\n        self.try_to")),
    mutant("held_run_again", ("        if self.prev is not None:\n            self.r -= 1\n", "        if self.held is not None:\n            self.prev, self.held = self.held, None\n            self.r -= 1\n        if self.prev is not None:\n            self.r -= 1\n")),
    mutant("delivers_before_it_sends", ("        self.a_broadcast()\n        held = self.held\n", "        held = self.held\n")),
    mutant("marker_forgotten", ("                if self.marker:\n                    return True\n", "")),
]  # fmt: skip

ANY = [
    m for m in PLUS if m.name in ("own_message_redrawn", "previous_round_delivered_again", "no_rollback", "stash_lost")
]

RERUN = [
    mutant("each_decides_alone", ("self.r <= highest_started(done)", "self.r <= self.started")),
    *ANY,
]  # fmt: skip

MERGE = [
    mutant("second_round_twice", ("        if self.rerun_in_one:\n            self.own.pop(self.r + 1, None)", "        if False:\n            self.own.pop(self.r + 1, None)")),
    mutant("second_round_lost", ("            return own[0] + second[0], own[1] + second[1]", "            return own")),
    *ANY,
]  # fmt: skip

EA = [
    mutant("stays_reliable", ("        if not self.notices and not self.marker and not self.always_reliable and not again:  # l.74", "        if False:")),
    mutant("no_votes", ("        if len([p for p in others if self.voted(p, False) and self.voted(p, True)]) < len(self.members) // 2:\n            return False\n", "")),
    mutant("skipped_round_forgotten", ("        self.waiting.append(undelivered)", "        pass")),
    mutant("never_revoked", ("            if self.r > since:  #", "            if False:  #")),
    mutant("deaf_for_ever", ("                        self.deaf[target] = False\n", "                        pass\n")),
    mutant("removed_by_tracking", ("            self.lost = missing\n", "            self.lost = missing\n            return True\n")),
    mutant("half_is_enough", ("        return 2 * len(those) > len(self.members) or (", "        return 2 * len(those) >= len(self.members) or (")),
    mutant("never_prepared", ("        if self.beats > self.patience():\n            self.prepare()\n", "")),
    mutant("nobody_comes_back", ("        self.forget_eon()\n        self.on_join_group()\n", "        self.forget_eon()\n")),
    mutant("own_messages_lost_outside", ("            self.queue[:0] = self.own[r][0]\n", "            pass\n")),
    mutant("nothing_said_again", ("        self.kick()  # what was under way", "        pass  # what was under way")),
]  # fmt: skip

RING = [
    mutant("delivered_unstable", ("        while self.pending and self.pending[0].stable:", "        while self.pending:")),
    mutant("stable_out_of_order", ("                entry.stable = True\n                break\n", "                self.pending.remove(entry)\n                self.hand_over(entry.msg)\n                return\n")),
    mutant("by_arrival_on_the_ring", ("        while at > 0 and precedes(msg, self.pending[at - 1].msg):", "        while False:")),
    mutant("clock_not_raised", ("        self.clock[j] += 1\n", "        self.clock[j] = self.clock[j]\n")),
    mutant("ack_stops_early", ("        if self.after(2) != msg.origin:\n            self.send_one(self.after(1), msg)\n", "        pass\n")),
    mutant("pending_not_exchanged", ("            self.merge(Ring(size, origin, clock, m))", "            pass")),
    mutant("installs_without_acks", ("        if len(self.acks.get(self.target, {})) < len(self.target):\n            return\n", "")),
    mutant("delivered_before_the_view", ("        if msg.size > len(self.members) or (\n", "        if False and (\n")),
    mutant("ring_goes_on_in_a_view_change", ("        return size == len(self.members) and not self.target", "        return size == len(self.members)")),
    mutant("early_on_the_ring_lost", ("            self.early.append((sender, msg))\n        return size", "            pass\n        return size")),
    mutant("views_not_intersected", ("        if len(common) < len(self.view()):\n            self.change_view(common)\n", "")),
    mutant("left_out_not_told", ("        self.send(left_out, State(self.target, ()))", "        pass")),
    mutant("left_out_goes_on", ("        if self.pid not in msg.members and not self.outlasts(sender):", "        if False:")),
    mutant("left_out_is_obeyed", ("        if sender not in self.view():\n            return  # it is left out itself, and was told\n", "")),
    mutant("outlasts_a_member", ("        return other not in self.view() and 2 * ", "        return 2 * ")),
    mutant("outlasts_nobody", ("        return other not in self.view() and 2 * len(self.view()) > self.replicas", "        return False")),
    mutant("half_outlasts_half", (" and 2 * len(self.view()) > self.replicas", "")),
    mutant("own_pause_is_silence_of_others", ("        self.detector.look(self.now)\n", "")),
    mutant("older_view_last", ("        return a.size > b.size", "        return a.size < b.size")),
]  # fmt: skip

DISKS = [  # of servers that come back
    mutant("whole_round_not_durable", ("            self.save(Whole(r, content_of(done)))\n", "")),
    mutant("promise_not_durable", ("            self.save(Promised(self.promised))\n", "            pass\n")),
    mutant("eon_not_durable", ("        self.save(self.began(greeting, rounds))\n", "")),
    mutant("delivered_before_it_is_on_disk", ("        return not self.durable or number_of(done) <= self.stored\n", "        return True\n")),
    mutant("rounds_go_on_after_a_restart", ("        self.back = self.eon > 0 and not self.fresh\n", "        self.back = False\n")),
    mutant("nobody_is_asked", ("        unheard = self.unheard()\n", "        unheard: list[int] = []\n")),
    mutant("majority_though_in_doubt", ("if self.lost_disk or not self.clean or latest == 0", "if self.lost_disk or latest == 0")),
    mutant("what_others_remember_is_ignored", ("        if not self.lost_disk and self.remembers_more(msg):\n", "        if False:\n")),
    mutant("lost_disk_forgets_nothing", ("            self.above = latest + 1\n            self.save", "            self.above = 0\n            self.save")),
    mutant("no_ballot_after_a_restart", ("            self.prepare()\n        elif self.eon > 0:\n", "            pass\n        elif self.eon > 0:\n")),
    mutant("end_of_an_eon_forgotten", ("        self.decided = Decided(record.eon - 1, record.r - 1, record.members, record.rounds)\n", "        self.decided = None\n")),
    mutant("snapshot_without_undelivered_rounds", ("        records += [Whole(r, content_of(whole[r])) for r in sorted(whole) if self.last < r <= self.written]\n", "")),
    mutant("no_snapshot_is_copied", ("        self.out.pulls.append(sender)\n", "        pass\n")),
    mutant("no_welcome_outlives_a_snapshot", ("        if welcome is not None and len(self.log) > welcome.past:", "        if welcome is not None:")),
    mutant("waits_in_vain_for_who_is_out", ("            if self.promised == 0:\n                self.prepare()\n        elif msg.join", "            pass\n        elif msg.join")),
    mutant("one_of_two_waits_for_the_absent", ("            self.absent[sender] = True\n", "")),
    mutant("each_of_two_decides_alone", (" and self.pid in those and any(p in self.absent for p in self.members)", "")),
]  # fmt: skip

ALLCONCUR_EA = [
    mutant("last_round_not_in_a_snapshot", ("            self.last = self.written = self.stored = record.last\n", "            self.last = record.last\n")),
    *[m for m in EA if m.name in ("removed_by_tracking", "never_prepared")],
    mutant("rounds_go_on_behind_a_promise", ("    def try_to_complete(self) -> None:\n        if self.promised == 0:\n", "    def try_to_complete(self) -> None:\n        if True:\n")),
    mutant("whole_rounds_not_told", ("        if self.got == len(self.members):\n            undelivered.append(self.m)\n", "")),
]  # fmt: skip

FAMILY = {"lcr": RING, "allconcur_ea": ALLCONCUR_EA, "allconcur": TRACKING, "allconcur_plus": PLUS, "allconcur_plus_uniform": UNIFORM,
          "allconcur_plus_rerun": RERUN, "allconcur_plus_merge": MERGE, "allconcur_plus_ea": [*EA, *DISKS]}  # fmt: skip
ROLES = {"allconcur": "AllConcur", "allconcur_plus": "AllConcurPlus", "allconcur_plus_uniform": "AllConcurPlusUniform",
         "allconcur_plus_rerun": "AllConcurPlusRerun", "allconcur_plus_merge": "AllConcurPlusMerge",
         "allconcur_plus_ea": "AllConcurPlusEA", "allconcur_ea": "AllConcurEA"}  # fmt: skip
SHOWN = {
    "delivered_before_it_is_on_disk": 3613,
    "no_welcome_outlives_a_snapshot": 8165,
    "promise_not_durable": 480,
    "one_of_two_waits_for_the_absent": 502286,
}  # seeds of the adversary, where the first ones do not
ALL = [("allgather", m) for m in ALLGATHER] + [(name, m) for name, mutants in FAMILY.items() for m in mutants]


def table_of(name: str, broken: Mutant) -> Protocol:
    if name == "allgather":
        module = load(broken, rounds, overlay, allgather)
        replica, messages = module.AllGather, module.MESSAGES
    elif name == "lcr":
        module = load(broken, rounds, lcr)
        replica, messages = module.Lcr, module.MESSAGES
    else:
        shared = (failure_detectors, rounds, past, overlay, joining, allconcur_messages, allconcur_plus)
        module = load(broken, *shared, ballots, votes, round_records, durable_rounds, allconcur)
        plus = sys.modules[f"mutant_{broken.name}_allconcur_plus"]
        replica = getattr(module, ROLES[name], None) or getattr(plus, ROLES[name])
        messages = module.MESSAGES
    client = sys.modules[f"mutant_{broken.name}_rounds"].RoundClient
    return replace(protocol(name), replica=replica, messages=messages, client=client)


def caught(name: str, broken: Mutant, monkeypatch: pytest.MonkeyPatch, seeds: range) -> str:
    table = table_of(name, broken)
    monkeypatch.setitem(scenarios.UNDER_TEST, name, table)
    for scenario, (of, _) in scenarios.SCENARIOS.items():
        if of == name:
            try:
                scenarios.run(scenario)
            except CRASHES as error:
                return f"{scenario}: {type(error).__name__}"
    if table.durable:
        for step in STEPS:
            try:
                step(table)
            except CRASHES as error:
                return f"{step.__name__}: {type(error).__name__}"
    return caught_by_swarm(table, seeds) or caught_by_adversary(table, SHOWN.get(broken.name, 1))


def caught_by_adversary(table: Protocol, first: int) -> str:
    """Play against it, if wrong suspicions are what it is made for: time-outs alone seldom come at the worst moment."""
    for seed in range(first, first + 200 if table.detector == "◇P" else first):
        if problem := judge_adversary(table, seed).problem:
            return f"adversary, seed {seed}: {problem}"
    return ""


@pytest.mark.parametrize(("name", "broken"), ALL, ids=[f"{name}: {m.name}" for name, m in ALL])
def test_mutant_is_caught(name: str, broken: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    if (name, broken.name) == ("allconcur_plus_rerun", "each_decides_alone"):
        pytest.xfail("not caught since only a minority may be removed: it needs a scenario of its own")
    how = caught(name, broken, monkeypatch, SEEDS)
    print(how)
    assert how, f"{broken.name} survived all scenarios and {len(SEEDS)} seeds"


@pytest.mark.parametrize("name", ["allgather", "lcr", *ROLES])
def test_unbroken_protocol_is_not_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.caught_by_adversary", lambda table, first: "")  # takes long
    assert caught(name, mutant(f"unbroken_{name}"), monkeypatch, range(4)) == ""
