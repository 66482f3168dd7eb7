"""Every mutant of tests/mutants, and the scopes in which the explorer looks for it."""

from collections.abc import Callable
from functools import partial

from amcast.core.process import Protocol
from amcast.explore.scope import Scope
from amcast.lab.exploration import Exploration, explore
from amcast.protocols import protocol, white_box, white_box_state
from tests.mutants import Mutant, load, replace, test_black_box, test_optimistic, test_skeen, test_white_box

WALKS = 150

EVERYBODY = ("g0/0", "g0/1", "g0/2")
BOTH = (("c0", (0, 1)), ("c1", (0, 1)))
ONE_GROUP = (
    Scope("fallen", "the client crashes while all members try to lead", (3,), (("c0", (0,)),),
          elections=EVERYBODY, crashes=("c0",), at_once=True, mute=("Reply",)),
    Scope("ticks", "time-outs, a crash and two leader changes", (3,), (("c0", (0,)), ("c0", (0,)), ("c1", (0,))),
          elections=("g0/1", "g0/2"), crashes=("g0/0", "c0"), timers=EVERYBODY * 4, at_once=True),
)  # fmt: skip
HUNT = (
    Scope("pair", "two groups of one, a client crashes", (1, 1), BOTH, crashes=("c0",), timers=("g0/0", "g1/0") * 3,
          at_once=True, mute=("Reply",)),
    Scope("chain", "three groups of one, one message after the other", (1, 1, 1),
          (("c0", (0, 1)), ("c0", (1, 2)), ("c1", (0, 2)), ("c1", (0, 1, 2))), at_once=True),
    *ONE_GROUP,
    Scope("storm", "two groups, three leader changes, a crash", (3, 1), (("c0", (0, 1)), ("c1", (0,))),
          elections=EVERYBODY, crashes=("c0", "g0/0"), at_once=True, mute=("Reply",)),
)  # fmt: skip
DURABLE = (
    Scope("disk", "members crash, come back from their disks and try to lead", (3,), (("c0", (0,)), ("c1", (0,))),
          elections=("g0/1", "g0/2"), crashes=EVERYBODY, restarts=EVERYBODY, timers=EVERYBODY, at_once=True,
          mute=("Reply",)),
    Scope("disks", "leaders of two groups crash and come back", (3, 1), BOTH, elections=("g0/1",),
          crashes=("g0/0", "g0/2", "g1/0"), restarts=("g0/0", "g0/2", "g1/0"), at_once=True, mute=("Reply",)),
)  # fmt: skip
MEMBERS = (
    Scope("members", "members multicast two messages each", (1, 1),
          (("g0/0", (0, 1)), ("g0/0", (0,)), ("g1/0", (0, 1)), ("g1/0", (1,))), open_loop=True, at_once=True,
          timers=("g0/0", "g1/0") * 2, orders=False),
    Scope("comings", "a group leaves and joins again", (1, 1), (("g0/0", (0, 1)), ("g1/0", (0, 1))), at_once=True,
          reconfigurations=(("g0/0", "leave", "g1"), ("g0/0", "join", "g1"), ("g1/0", "leave", "g0")), orders=False),
)  # fmt: skip


def white_box_table(broken: Mutant) -> Protocol:
    return replace(protocol("white_box"), replica=load(broken, white_box_state, white_box).WhiteBox)


TABLES: dict[str, Callable[[], Protocol]] = {
    **{f"skeen: {m.name}": partial(test_skeen.table, m) for m in test_skeen.MUTANTS},
    **{f"white_box: {m.name}": partial(white_box_table, m) for m in test_white_box.MUTANTS},
    **{
        f"{name}: {m.name}": partial(test_black_box.broken_table, name, cls, modules, m)
        for name, cls, modules, m in test_black_box.ALL
    },
    **{f"baseline: {m.name}": partial(test_optimistic.table, "baseline", m) for m in test_optimistic.IN_BOTH},
    **{f"optimistic: {m.name}": partial(test_optimistic.table, "optimistic", m) for m in test_optimistic.IN_OPTIMISTIC},
}


def scopes_for(table: Protocol) -> tuple[Scope, ...]:
    if table.single_replica:
        return HUNT[1:2]
    if table.single_group:
        return ONE_GROUP
    if table.durable:
        return HUNT + DURABLE
    return HUNT + MEMBERS if table.name in ("baseline", "optimistic") else HUNT


def hunt(name: str, walks: int = WALKS, only: str = "") -> Exploration | None:
    """The first violation that random schedules show, shrunk."""
    table = TABLES[name]()
    for scope in scopes_for(table):
        if only in ("", scope.name):
            found = explore(table, scope, walks=walks)
            if found.violation is not None:
                return found
    return None
