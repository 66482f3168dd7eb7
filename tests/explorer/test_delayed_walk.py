"""Walks with slow channels: they go on where a search was cut, and find what short schedules do not show."""

from amcast.core.protocol import Protocol
from amcast.explorer.actor import Setting
from amcast.explorer.delayed_walk import DEPTH, DelayedWalks
from amcast.explorer.exploration import explore
from amcast.explorer.properties import Properties
from amcast.explorer.scope import Scope
from amcast.explorer.scopes import scope_named, scopes_of
from amcast.explorer.search import Limits
from amcast.protocols import PROTOCOLS, protocol
from tests.mutants import mutant, test_white_box


def walked(table: Protocol, scope: Scope, walks: int, seed: int = 1) -> DelayedWalks:
    work = DelayedWalks(Properties(Setting.of(table, scope)), seed)
    work.run(walks, Limits())
    return work


def test_walks_are_repeatable_and_go_far() -> None:
    table = protocol("white_box")
    scope = scope_named(table, "resend")
    first, again, other = (walked(table, scope, 20, seed) for seed in (1, 1, 2))
    assert first.found is None and first.walks == 20
    assert (first.transitions, first.depth) == (again.transitions, again.depth) != (other.transitions, other.depth)
    assert 50 < first.depth <= DEPTH


def test_a_search_that_is_cut_finds_what_only_a_long_schedule_shows() -> None:
    """A leader counts the acknowledgement of a member twice that was asked again."""
    edit = ("        if acks.members[i] & bit:\n            return\n", "")
    table = test_white_box.broken_table(mutant("acknowledged_twice", edit))
    scope = scope_named(table, "replies")
    assert explore(table, scope, Limits(states=3000), follow=0, delayed=0).violation is None
    found = explore(table, scope, Limits(states=3000), follow=0)
    assert found.violation is not None and found.violation.property == "invariant"
    assert 0 < found.delayed < 500 and len(found.violation.moves) < found.found_after


def test_what_a_search_that_ends_saw_is_not_walked_again() -> None:
    found = explore(protocol("skeen"), scope_named(protocol("skeen"), "small"))
    assert found.complete and found.delayed == found.longest == 0


def test_every_kind_of_protocol_has_a_scope_for_what_used_to_be_left_out() -> None:
    """Clients that ask again, several time-outs at one process, and two messages of a sender to a group of two."""
    for table in PROTOCOLS.own.values():
        scopes = scopes_of(table).values()
        senders = [[who for who, _ in scope.multicasts] for scope in scopes]
        assert any(len(set(names)) < len(names) for names in senders), f"{table.name}: no sender multicasts twice"
        if table.elects:
            assert any("c0" in scope.elections for scope in scopes), f"{table.name}: no client asks again"
            assert any(scope.timers.count("g0/0") > 1 for scope in scopes), f"{table.name}: one tick each"
    twice = (("c0", (0,)), ("c0", (0,)))
    repeated = scopes_of(protocol("fifo"))["repeated"]
    assert repeated.groups == (2,) and repeated.multicasts[:2] == twice
