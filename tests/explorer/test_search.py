"""The explorer itself: what it counts, what it leaves out and why that loses nothing."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from amcast.errors import UsageError
from amcast.explorer.actor import DELTA, Setting
from amcast.explorer.canonical import digest, plain
from amcast.explorer.exploration import explore
from amcast.explorer.properties import Properties
from amcast.explorer.run import RealRun, parse_move, spell
from amcast.explorer.scope import Scope
from amcast.explorer.scopes import scope_named, scopes_of
from amcast.explorer.search import Limits, Search
from amcast.protocols import PROTOCOLS, protocol

# Every state of these scopes is seen: protocol, scope -> unique states, moves. A change of a protocol may change them.
PINNED = {
    ("skeen", "small"): (543, 766),
    ("skeen", "cycle"): (26340, 44630),
    ("white_box", "small"): (4356, 6070),
    ("white_box", "conflict"): (1279, 1744),
    ("primcast", "small"): (23794, 41327),
    ("primcast_hybrid", "conflict"): (3651, 6060),
    ("ft_skeen", "small"): (4953, 7003),
    ("ft_skeen_eager", "conflict"): (823, 1084),
    ("fastcast", "small"): (4953, 7003),
    ("fastcast_eager", "conflict"): (2009, 2806),
    ("multi_paxos", "small"): (9274, 16444),
    ("paxos_amcast", "conflict"): (69, 78),
    ("baseline", "conflict"): (474, 566),
    ("baseline", "reconfiguration"): (118, 155),
    ("optimistic", "small"): (7095, 14528),
    ("optimistic", "reconfiguration"): (81, 111),
    ("fifo", "small"): (2868, 6706),
    ("causal", "small"): (2868, 6706),
    ("fifo", "blind"): (340, 476),
    ("causal_stable", "crash"): (3643, 12789),
    ("causal_stable", "blind"): (995, 1651),
    ("allgather", "small"): (52, 73),
    ("allconcur", "small"): (13863, 26256),
    ("allconcur", "crash"): (18001, 53982),
    ("allconcur", "inside"): (7933, 12976),
    ("allconcur_ea", "tiny"): (29, 28),
    ("allconcur_ea", "pair"): (543, 749),
    ("allconcur_plus", "small"): (812, 1396),
    ("allconcur_plus", "inside"): (1489, 2087),
    ("allconcur_plus_uniform", "small"): (947, 1666),
    ("allconcur_plus_uniform", "crash"): (1613, 3560),
    ("allconcur_plus_rerun", "small"): (812, 1396),
    ("allconcur_plus_merge", "small"): (812, 1396),
    ("allconcur_plus_ea", "small"): (947, 1666),
    ("lcr", "small"): (256, 425),
    ("lcr", "crash"): (448, 937),
    ("lcr", "beside"): (1746, 2380),
}


@pytest.mark.parametrize(("name", "scope"), PINNED, ids=["-".join(key) for key in PINNED])
def test_every_state_is_seen_and_none_violates_a_property(name: str, scope: str) -> None:
    found = explore(protocol(name), scope_named(protocol(name), scope), follow=100)
    assert found.verdict == ("ok", "") and found.complete
    assert found.unseen == [] and found.sometimes
    assert found.rests > 0 and found.evidence.deliveries > 0
    assert found.evidence.replicas == found.evidence.expected and found.evidence.states == found.states
    assert (found.states, found.transitions) == PINNED[(name, scope)]


def test_every_protocol_has_a_pinned_scope_and_a_large_one() -> None:
    assert {name for name, _ in PINNED} == set(PROTOCOLS)
    assert all("large" in scopes_of(table) for table in PROTOCOLS.values())


@pytest.mark.parametrize("name", ["skeen", "white_box"])
def test_sleep_sets_leave_out_moves_but_no_state(name: str) -> None:
    table = protocol(name)
    scope = scope_named(table, "conflict" if table.elects else "small")
    asleep, awake = explore(table, scope, follow=0), explore(table, scope, follow=0, sleeping=False)
    assert asleep.states == awake.states and asleep.rests == awake.rests
    assert asleep.transitions < awake.transitions


def test_a_state_is_the_one_that_its_schedule_leads_real_processes_to() -> None:
    """What is looked up must be what would happen: for a sample of all states, every process is compared."""
    setting = Setting.of(protocol("white_box"), scope_named(protocol("white_box"), "small"))
    properties = Properties(setting)
    model = properties.model
    properties.at_rest = lambda state: None  # type: ignore[method-assign]
    search = Search(properties)
    search.run()
    ends = search.ends()[::40]
    assert len(ends) >= 30
    for end in ends:
        run = RealRun(setting)
        state = model.initial
        for move in search.moves_to(end):
            run.move(move)
            state, _ = model.after(state, model.number(move))
        for real, looked_up in zip(run.actors, model.actors(state), strict=True):
            assert digest(plain(real.process, model.monitor_types)) == digest(
                plain(looked_up.process, model.monitor_types)
            )
            assert real.log == looked_up.log
        assert run.channels.keys() >= model.under_way(state).keys()
        assert {ends: list(channel) for ends, channel in run.channels.items() if channel} == {
            ends: list(channel) for ends, channel in model.under_way(state).items()
        }


def test_limits_stop_a_search_and_it_says_so() -> None:
    table = protocol("skeen")
    scope = scope_named(table, "cycle")
    assert explore(table, scope, Limits(states=500)).states < 600
    shallow = explore(table, scope, Limits(depth=4))
    assert shallow.depth == 4 and not shallow.complete and shallow.ended > 50
    hurried = explore(table, scope, Limits(seconds=0))
    assert not hurried.complete and 1000 < hurried.states < 10_000, "it looks at its clock now and then"


def test_random_walks_are_repeatable_and_see_less() -> None:
    table = protocol("white_box")
    scope = scope_named(table, "leader-change")
    first, again, other = (explore(table, scope, walks=30, seed=seed) for seed in (1, 1, 2))
    assert (first.states, first.transitions) == (again.states, again.transitions)
    assert first.states != other.states
    assert first.schedules == 30 and not first.complete and first.violation is None


def test_crashes_lose_a_suffix_of_each_channel() -> None:
    """A client sends to two groups and crashes: each of them may get the message, or not."""
    scope = Scope("lost", "", (1, 1), (("c0", (0, 1)),), crashes=("c0",), at_once=True)
    setting = Setting.of(protocol("white_box"), scope)
    run = RealRun(setting)
    run.move(("crash", 2))
    assert run.possible() == [("deliver", 2, 0), ("deliver", 2, 1), ("lose", 2, 0), ("lose", 2, 1)]
    run.move(("lose", 2, 0))
    assert run.possible() == [("deliver", 2, 1), ("lose", 2, 1)]
    found = explore(protocol("white_box"), scope)
    assert found.violation is None and found.complete and found.unseen == []


def test_a_process_may_crash_inside_a_step() -> None:
    """Its message leaves for one of two others only, and it delivers nothing."""
    setting = Setting.of(protocol("allconcur"), scope_named(protocol("allconcur"), "inside"))
    run = RealRun(setting)
    run.move(("falter", 0))
    assert ("multicast", 0) in run.possible() and ("falter", 0) not in run.possible()
    run.move(("multicast", 0))
    assert run.possible() == [("cut", 0, "1"), ("cut", 0, "2")]
    run.move(("cut", 0, "1"))
    assert [ends for ends, channel in run.channels.items() if channel] == [(0, 1)]
    assert [kind for kind, _, _ in run.actors[0].log] == ["multicast", "crash"]
    assert ("detect", 2, 0) in run.possible() and ("detect", 1, 0) not in run.possible()  # first what it has sent
    run.move(("deliver", 0, 1))
    run.move(("detect", 1, 0))
    with pytest.raises(UsageError):
        run.move(("detect", 1, 0))


def test_only_a_detector_that_may_be_wrong_suspects_who_is_up() -> None:
    scope = scope_named(protocol("allconcur_ea"), "suspicion")
    wrong, right = (RealRun(Setting.of(protocol(name), scope)) for name in ("allconcur_ea", "allconcur"))
    assert ("detect", 1, 0) in wrong.possible() and ("detect", 1, 0) not in right.possible()
    wrong.move(("detect", 1, 0))
    wrong.move(("trust", 1, 0))
    assert wrong.actors[1].suspects == []


def test_a_connection_may_break_and_a_snapshot_take_the_place_of_records() -> None:
    scope = Scope("new", "", (1, 1), (("c0", (0,)),), losses=(("c0", "g0/0"),), restarts=("g0/0",),
                  crashes=("g0/0",), snapshots=("g0/0",), at_once=True)  # fmt: skip
    run = RealRun(Setting.of(protocol("white_box"), scope))
    run.move(("deliver", 2, 0))
    records = list(run.actors[0].durable)
    run.move(("snapshot", 0))
    assert run.actors[0].durable != records and not run.actors[0].unsynced
    run = RealRun(Setting.of(protocol("white_box"), scope))
    run.move(("lose", 2, 0))
    assert ("deliver", 2, 0) not in run.possible()
    found = explore(protocol("white_box"), scope)
    assert found.complete and found.violation is None


def test_a_client_asks_again() -> None:
    """The move did nothing for a while: clients have no leader to suspect."""
    run = RealRun(Setting.of(protocol("white_box"), Scope("again", "", (2,), (("c0", (0,)),), elections=("c0",))))
    assert [(dest, type(msg).__name__) for dest, msg in run.move(("suspect", 2)).sends] == [
        (0, "Multicast"), (1, "Multicast")]  # fmt: skip


def test_a_move_is_what_it_is_called() -> None:
    setting = Setting.of(protocol("allconcur_ea"), scope_named(protocol("allconcur_ea"), "suspicion"))
    for text in ("deliver g0/0 g0/1", "lose g0/0 g0/1", "detect g0/1 g0/0", "trust g0/1 g0/0", "falter g0/0",
                 "cut g0/0 1",
                 "multicast g0/0", "snapshot g0/0", "timer g0/0 beat", "crash g0/0"):  # fmt: skip
        assert spell(setting, parse_move(setting, text)) == text


def test_a_timer_moves_the_clock_of_its_process_alone() -> None:
    scope = Scope("tick", "", (3,), (("c0", (0,)),), timers=("g0/1",), at_once=True)
    run = RealRun(Setting.of(protocol("white_box"), scope))
    run.move(("timer", 1, "tick"))
    assert [actor.now > 5 * DELTA for actor in run.actors] == [False, True, False, False]
    assert ("timer", 1, "tick") not in run.possible()


def test_messages_to_oneself_may_be_events_of_their_own() -> None:
    table = protocol("white_box")
    scope = scope_named(table, "conflict")
    assert explore(table, replace(scope, at_once=False), Limits(depth=12), follow=0).verdict == ("ok", "")
    setting = Setting.of(table, replace(scope, at_once=False))
    run = RealRun(setting)
    run.move(("deliver", 2, 0))
    assert ("deliver", 0, 0) in run.possible()


def test_counts_do_not_depend_on_hashes() -> None:
    code = (
        "from amcast.explorer.exploration import explore; from amcast.explorer.scopes import scope_named;"
        "from amcast.protocols import protocol; t = protocol('ft_skeen');"
        "found = explore(t, scope_named(t, 'small'), follow=0); print(found.states, found.transitions, found.rests)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
