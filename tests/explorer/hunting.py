"""Every mutant of tests/mutants, and the scopes in which the explorer looks for it."""

from collections.abc import Callable
from functools import partial

from amcast.core.protocol import Protocol
from amcast.explorer.actor import Setting
from amcast.explorer.exploration import Exploration, explore
from amcast.explorer.run import RealRun, parse_move, spell
from amcast.explorer.scope import Scope
from amcast.explorer.scopes import scopes_of
from amcast.explorer.search import Limits
from amcast.protocols import protocol
from tests.explorer.table import AFTER, FOUND
from tests.mutants import (
    test_allconcur,
    test_black_box,
    test_optimistic,
    test_ordering,
    test_skeen,
    test_white_box,
)

WALKS = 5000
DEPTH = 400  # moves: in some broken protocols rounds go on for ever

EVERYBODY = ("g0/0", "g0/1", "g0/2")
BOTH = (("c0", (0, 1)), ("c1", (0, 1)))
THREE = (("c0", (0,)), ("c0", (0,)), ("c1", (0,)))


def pairs(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((a, b) for a in names for b in names if a != b)


ONE_GROUP = (
    Scope("fallen", "the client crashes while all members try to lead", (3,), (("c0", (0,)),),
          elections=EVERYBODY, crashes=("c0",), at_once=True, mute=("Reply",)),
    Scope("ticks", "time-outs, a crash and two leader changes", (3,), THREE,
          elections=("g0/1", "g0/2"), crashes=("g0/0", "c0"), timers=EVERYBODY * 4, at_once=True),
    Scope("duel", "each member tries to lead twice", (3,), (("c0", (0,)), ("c1", (0,))), elections=EVERYBODY * 2,
          crashes=("c0",), at_once=True, mute=("Reply",)),
    Scope("resend", "clients ask again, and connections to them break", (3,), THREE, elections=("c0", "c1", "g0/1"),
          losses=tuple((p, c) for p in EVERYBODY for c in ("c0", "c1")), timers=("c0", "c1"), at_once=True),
    Scope("unanswered", "a reply is lost, and a member is down that others wait for", (3,), (("c0", (0,)),) * 2,
          elections=("c0",), losses=tuple((p, "c0") for p in EVERYBODY), crashes=("g0/2",), at_once=True),
    Scope("stuck", "a member that tries to lead crashes", (3,), (("c0", (0,)), ("c1", (0,))), elections=("g0/2",),
          crashes=("g0/2",), at_once=True, mute=("Reply",)),
    Scope("overwritten", "a client asks a new leader while the old one has other messages", (3,),
          (("c0", (0,)), ("c1", (0,)), ("c2", (0,))), elections=("g0/1", "g0/2", "c2"), at_once=True,
          mute=("Reply", "Hint")),
    Scope("longest", "three messages and two new leaders", (3,), (("c0", (0,)), ("c1", (0,)), ("c2", (0,))),
          elections=("g0/1", "g0/2"), at_once=True, mute=("Reply",)),
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
WIDE = (
    Scope("triangle", "messages to two pairs of three groups, a new leader that crashes and another", (3, 1, 1),
          (("c0", (0, 1)), ("c1", (0, 2))), elections=("g0/1", "g0/2"), crashes=("g0/1",), at_once=True,
          mute=("Reply",)),
    Scope("return", "the same with a leader that has led before", (3, 1, 1), (("c0", (0, 1)), ("c1", (0, 2))),
          elections=("g0/1", "g0/0", "g0/1", "g0/2"), crashes=("g0/1",), at_once=True, mute=("Reply",)),
    Scope("forgetting", "the leader changes or crashes, and members forget what all have delivered", (3, 1),
          (("c0", (0, 1)), ("c1", (0,)), ("c2", (1,))), elections=("g0/1",),
          crashes=("g0/0",), timers=(*EVERYBODY, *EVERYBODY, "g0/1", "g1/0", "g1/0"), at_once=True, mute=("Reply",)),
    Scope("ahead", "another group's clock is ahead, and the leader changes", (3, 1),
          (("c0", (0, 1)), ("c1", (0,)), ("c2", (1,))), elections=("g0/1", "c1"), at_once=True,
          mute=("Reply", "Hint")),
    Scope("guess", "leaders of two groups change while they guess", (1, 3), (("c0", (0, 1)), ("c1", (1,))),
          elections=("g0/0", "g1/1", "g1/2"), at_once=True, mute=("Reply",)),
    Scope("guesses", "the same in groups of three, and a client asks again", (3, 3), (("c0", (0, 1)), ("c1", (1,))),
          elections=("g0/1", "g1/1", "c0", "c0"), at_once=True, mute=("Reply",)),
)  # fmt: skip
LOSSY = (  # between replicas that may come back, links begin anew
    Scope("reconnect", "connections in a group break, and its leader changes", (3,), THREE, elections=EVERYBODY,
          losses=pairs(*EVERYBODY), timers=EVERYBODY, at_once=True),
    Scope("gale", "two groups, two messages to both, leader changes, broken connections, time-outs", (3, 1),
          (*BOTH, ("c0", (0,))), elections=(*EVERYBODY, "c0"), losses=(*pairs(*EVERYBODY), *pairs("g0/0", "g1/0")),
          timers=(*EVERYBODY, "g1/0") * 2, at_once=True),
)  # fmt: skip
DURABLE = (
    Scope("disk", "members crash, come back from their disks and try to lead", (3,), (("c0", (0,)), ("c1", (0,))),
          elections=("g0/1", "g0/2"), crashes=EVERYBODY, restarts=EVERYBODY, timers=EVERYBODY, at_once=True,
          mute=("Reply",)),
    Scope("disks", "leaders of two groups crash and come back", (3, 1), BOTH, elections=("g0/1",),
          crashes=("g0/0", "g0/2", "g1/0"), restarts=("g0/0", "g0/2", "g1/0"), at_once=True, mute=("Reply",)),
    Scope("snapshots", "members make snapshots, crash and come back", (3,), THREE, elections=("g0/1", "g0/2", "c0"),
          crashes=EVERYBODY, restarts=EVERYBODY, snapshots=EVERYBODY, timers=(*EVERYBODY, "c0"), at_once=True),
    Scope("alone", "a group of one forgets, makes a snapshot, crashes and comes back", (1,), (("c0", (0,)),),
          crashes=("g0/0",), restarts=("g0/0",), snapshots=("g0/0",), elections=("c0",), timers=("g0/0",) * 3,
          at_once=True),
    Scope("single", "the same of two groups", (1, 1), (*BOTH, ("c0", (0,))), crashes=("g0/0",), restarts=("g0/0",),
          snapshots=("g0/0",), at_once=True),
    Scope("dropped", "what a new leader dropped, and a snapshot left out", (3, 1), (("c0", (0, 1)),),
          elections=("g0/1", "c0"), crashes=("g0/2",), restarts=("g0/2",) * 2, snapshots=("g0/2",), at_once=True,
          mute=("Reply",)),
    Scope("forgets", "a member crashes after everybody heard what it had delivered", (3,), (("c0", (0,)),),
          crashes=("g0/1",), restarts=("g0/1",), timers=("g0/0", "g0/0", "g0/0", "g0/1", "g0/2", "g0/2"),
          at_once=True, mute=("Reply",)),
)  # fmt: skip
MEMBERS = (
    Scope("members", "members multicast two messages each", (1, 1),
          (("g0/0", (0, 1)), ("g0/0", (0,)), ("g1/0", (0, 1)), ("g1/0", (1,))), open_loop=True, at_once=True,
          timers=("g0/0", "g1/0") * 2, orders=False),
    Scope("relay", "a member crashes while its message is at a few", (3, 1), (("g0/1", (0, 1)), ("g0/2", (1,)),
          ("g0/1", (1,))), whenever=True, crashes=("g0/0", "g0/1"), timers=("g0/0", "g0/2", "g1/0"), at_once=True,
          orders=False),
    Scope("relays", "a member crashes while its messages are in two groups", (3, 1, 1), (("g0/1", (1,)),
          ("g0/1", (1, 2)), ("g0/2", (1,))), whenever=True, crashes=("g0/1",), timers=("g2/0",) * 3, at_once=True,
          orders=False),
    Scope("learners", "leaders change while another group learns", (3, 1), (("g0/0", (1,)), ("g0/1", (0, 1)),
          ("g1/0", (0, 1)), ("g0/2", (0,))), whenever=True, elections=EVERYBODY, crashes=EVERYBODY,
          timers=(*EVERYBODY, "g1/0") * 2, at_once=True, orders=False),
    Scope("lagging", "a group leaves and joins again, and a member of it hears of it late", (2, 1),
          (("g0/1", (1,)), ("g0/0", (1,)), ("g0/1", (0, 1)), ("g1/0", (0, 1))), whenever=True, at_once=True,
          reconfigurations=(("g0/0", "leave", "g1"), ("g0/0", "join", "g1")), timers=("g0/0", "g1/0"), orders=False),
    Scope("late", "a group leaves and joins again, and a member of the other hears of it late", (1, 2),
          (("g0/0", (1,)), ("g1/0", (0, 1)), ("g0/0", (0, 1))), whenever=True, at_once=True,
          reconfigurations=(("g0/0", "leave", "g1"), ("g0/0", "join", "g1")), orders=False),
    Scope("collect", "a leader crashes while another group learns, others try to lead, and members forget", (3, 1),
          (("g0/0", (0, 1)), ("g0/1", (0, 1))), whenever=True, at_once=True, elections=("g0/1", "g0/1", "g0/2"),
          crashes=("g0/0",), timers=("g0/0", "g0/1", "g0/2", "g0/1", "g0/2"), orders=False),
    Scope("windows", "two groups guess, and time passes", (1, 1),
          (("g0/0", (0, 1)), ("g0/0", (0, 1)), ("g1/0", (0, 1)), ("g1/0", (0,))), whenever=True, at_once=True,
          timers=("g0/0", "g1/0") * 4, orders=False),
    Scope("joins", "two groups leave a third one and join it again", (1, 1, 1),
          (("g0/0", (2,)), ("g0/0", (0, 2)), ("g1/0", (2,)), ("g1/0", (1, 2)), ("g2/0", (2,))), whenever=True,
          at_once=True, reconfigurations=(("g0/0", "leave", "g2"), ("g1/0", "leave", "g2"), ("g0/0", "join", "g2"),
          ("g1/0", "join", "g2")), timers=("g0/0", "g2/0", "g2/0"), orders=False),
    Scope("comings", "a group leaves and joins again", (1, 1), (("g0/0", (0, 1)), ("g1/0", (0, 1))), at_once=True,
          reconfigurations=(("g0/0", "leave", "g1"), ("g0/0", "join", "g1"), ("g1/0", "leave", "g0")), orders=False),
)  # fmt: skip

CHAIN = (("g2/0", (0,)), ("g2/0", (1,)), ("g1/0", (0,)), ("g1/0", (2,)), ("g1/0", (0, 2)), ("g1/0", (0,)))
BLIND = (
    Scope("oldest", "what one destination was told is told again to another", (1, 1, 1),
          (("c0", (0,)), ("c0", (1,)), ("g1/0", (2,)), ("g1/0", (0, 2))), whenever=True, at_once=True, orders=False,
          mute=("Alive",)),
    Scope("overtaking", "two messages of a sender, the second to one group more, beside another's", (2, 1),
          (("c0", (0,)), ("c0", (0, 1)), ("c1", (0, 1))), whenever=True, at_once=True, orders=False),
    Scope("blind", "a chain of messages that passes by a group", (1, 1, 1), CHAIN, whenever=True, at_once=True,
          orders=False),
    Scope("difference", "two messages of a member after a chain that passes by a group", (1, 1, 1),
          (("g2/0", (0,)), ("g2/0", (1,)), ("g1/0", (0,)), ("g1/0", (0,))), whenever=True, at_once=True, orders=False,
          mute=("Alive",)),
    Scope("exchange", "two groups multicast to each other", (1, 2), (("c0", (0, 1)), ("g0/0", (1,)), ("g0/0", (0, 1)),
          ("g1/0", (0,)), ("g1/1", (0, 1))), whenever=True, at_once=True, orders=False),
)  # fmt: skip
MORTAL = (
    Scope("predecessor", "a sender crashes after two messages, the first of which may be lost", (1, 1),
          (("c0", (1,)), ("c0", (0, 1))), crashes=("c0",), whenever=True, at_once=True, orders=False),
    Scope("mortal", "a sender and two members crash, and members hear of it", (2, 2),
          (("c0", (0, 1)), ("c0", (0,)), ("g0/0", (1,)), ("g0/0", (0, 1))), whenever=True, at_once=True, orders=False,
          crashes=("c0", "g0/1", "g1/0", "g1/1"), most_crashes=3, detections=pairs("g0/0", "g0/1", "g1/0", "g1/1")),
    Scope("copy", "a sender crashes inside a multicast, and so does who received it", (3,), (("c0", (0,)),),
          whenever=True, at_once=True, orders=False, crashes=("c0", *EVERYBODY), most_crashes=2),
    Scope("loss", "a sender crashes, and a chain of messages passes by a group", (1, 1, 1),
          (("c0", (0,)), ("c0", (1,)), ("g1/0", (0, 2)), ("g1/0", (0,))), whenever=True, at_once=True, orders=False,
          crashes=("c0",)),
)  # fmt: skip

FOUR = (*EVERYBODY, "g0/3")
FIVE = (*FOUR, "g0/4")
SEVEN = (*FIVE, "g0/5", "g0/6")


def each(*names: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, (0,)) for name in names)


ROUNDS = (
    Scope("trio", "three broadcast at any time", (3,), each(*EVERYBODY, "g0/0", "g0/1"), whenever=True, at_once=True,
          orders=False),
    Scope("clients", "two clients ask, and ask others", (3,), each("c0", "c1", "c0", "g0/2"), whenever=True,
          at_once=True, orders=False, timers=("c0", "c1")),
    Scope("eight", "eight broadcast", (8,), each(*(f"g0/{p}" for p in range(8))), at_once=True, orders=False),
)  # fmt: skip
FAILING = (
    Scope("trio-crash", "one of three crashes inside a broadcast, and others hear of it", (3,),
          each(*EVERYBODY, "g0/1"), whenever=True, at_once=True, orders=False, crashes=EVERYBODY, falters=EVERYBODY,
          detections=pairs(*EVERYBODY)),
    Scope("four-crash", "one of four crashes inside a broadcast", (4,), each(*FOUR, *FOUR[:2]), whenever=True,
          at_once=True, orders=False, crashes=FOUR, falters=FOUR, detections=pairs(*FOUR)),
    Scope("five-crash", "two of five crash inside broadcasts", (5,), each(*FIVE, *FIVE[:2]), whenever=True,
          at_once=True, orders=False, crashes=FIVE, falters=FIVE, most_crashes=2, detections=pairs(*FIVE)),
    Scope("join", "another member joins while three broadcast", (4,), each("g0/0", "g0/1", "g0/0", "g0/2"),
          whenever=True, at_once=True, orders=False, spare=1, mute=("Alive",),
          reconfigurations=(("g0/1", "members", "g0/0,g0/1,g0/2,g0/3"),)),
    Scope("join-slow", "another member joins, and asks two for what it lacks", (4,),
          each("g0/0", "g0/1", "g0/0", "g0/2"), whenever=True, at_once=True, orders=False, spare=1, mute=("Alive",),
          timers=("g0/3",) * 2, reconfigurations=(("g0/1", "members", "g0/0,g0/1,g0/2,g0/3"),)),
    Scope("join-crash", "a member crashes while another joins", (4,), each("g0/0", "g0/1", "g0/0"), whenever=True,
          at_once=True, orders=False, spare=1, mute=("Alive",), crashes=("g0/2",), falters=("g0/2",),
          detections=(("g0/0", "g0/2"), ("g0/1", "g0/2")),
          reconfigurations=(("g0/3", "join", "g0"),)),
    Scope("behind", "three broadcast at once, and one crashes", (3,), each(*EVERYBODY), at_once=True, orders=False,
          crashes=("g0/2",), detections=(("g0/0", "g0/2"), ("g0/1", "g0/2")), mute=("Alive",)),
    Scope("skip", "four broadcast at once, and one crashes", (4,), each(*FOUR), at_once=True, orders=False,
          crashes=("g0/3",), detections=tuple((p, "g0/3") for p in EVERYBODY), mute=("Alive",)),
    Scope("slow", "seven broadcast at once, two of them again, and one crashes", (7,), each(*SEVEN, "g0/1", "g0/3"),
          at_once=True, orders=False, open_loop=True, crashes=("g0/4",), mute=("Alive",),
          detections=tuple((p, "g0/4") for p in ("g0/0", "g0/2", "g0/6"))),
    Scope("stash", "the same, and another crashes", (7,), each(*SEVEN, "g0/1", "g0/3"), at_once=True, orders=False,
          open_loop=True, crashes=("g0/3", "g0/4"), most_crashes=2, mute=("Alive",), early=True,
          detections=(*((p, "g0/4") for p in ("g0/0", "g0/2", "g0/6")),
                      *((p, "g0/3") for p in ("g0/1", "g0/2", "g0/6")))),
    Scope("wrong", "one of three is suspected by both others, and may crash", (3,), each(*EVERYBODY, "g0/0"),
          whenever=True, at_once=True, orders=False, crashes=("g0/0",), falters=("g0/0",),
          detections=(("g0/1", "g0/0"), ("g0/2", "g0/0")), mute=("Alive",)),
    Scope("views", "one crashes, and then another inside a view change", (4,), each("g0/0", "g0/1", "g0/0"),
          whenever=True, at_once=True, orders=False, crashes=("g0/3",), falters=("g0/2",), most_crashes=2,
          detections=tuple((a, b) for a in FOUR for b in ("g0/2", "g0/3") if a < b), mute=("Alive",)),
    Scope("halves", "two suspect a third, with or without a reason", (3,), each(*EVERYBODY), at_once=True,
          orders=False, detections=(("g0/1", "g0/0"), ("g0/2", "g0/0")), mute=("Alive",)),
    Scope("client-crash", "clients ask members that crash", (3,), each("c0", "c1", "g0/2"), whenever=True,
          at_once=True, orders=False, timers=("c0", "c1"), crashes=EVERYBODY, detections=pairs(*EVERYBODY)),
    Scope("early", "one of four crashes and is suspected at once", (4,), each(*FOUR), whenever=True, at_once=True,
          orders=False, crashes=FOUR, falters=FOUR, detections=pairs(*FOUR), early=True),
)  # fmt: skip


TABLES: dict[str, Callable[[], Protocol]] = {
    **{f"skeen: {m.name}": partial(test_skeen.table, m) for m in test_skeen.MUTANTS},
    **{f"white_box: {m.name}": partial(test_white_box.broken_table, m) for m in test_white_box.MUTANTS},
    **{
        f"{name}: {m.name}": partial(test_black_box.broken_table, name, cls, modules, m)
        for name, cls, modules, m in test_black_box.ALL
    },
    **{f"baseline: {m.name}": partial(test_optimistic.table, "baseline", m) for m in test_optimistic.IN_BOTH},
    **{f"optimistic: {m.name}": partial(test_optimistic.table, "optimistic", m) for m in test_optimistic.IN_OPTIMISTIC},
    **{f"{name}: {m.name}": partial(test_ordering.table_of, name, m) for name, m in test_ordering.ALL},
    **{f"{name}: {m.name}": partial(test_allconcur.table_of, name, m) for name, m in test_allconcur.ALL},
}


def scopes_for(table: Protocol) -> tuple[Scope, ...]:
    """Beside those that `amcast explore` knows."""
    if table.single_replica:
        return HUNT[1:2]
    if table.broadcast:
        if table.detector == "◇P":  # of three or four at most one may crash or be suspected
            return ROUNDS + tuple(scope for scope in FAILING if scope.name in ("behind", "halves", "skip", "wrong"))
        return ROUNDS + (FAILING if table.detector else ())
    if "total" not in table.order:
        return BLIND + (MORTAL if table.name != "causal" else ())
    if table.single_group:
        return ONE_GROUP
    if table.name in ("baseline", "optimistic"):
        return MEMBERS + tuple(scope for scope in HUNT if scope.name != "resend")
    if table.name == "paxos_amcast":
        return HUNT
    return HUNT + WIDE + (LOSSY + DURABLE if table.durable else ())


def scope_for(table: Protocol, name: str) -> Scope:
    return {**scopes_of(table), **{scope.name: scope for scope in scopes_for(table)}}[name]


def moves_before(name: str) -> tuple[str, ...]:
    """The moves after which the hunt for a mutant begins: possible in the unbroken protocol.

    `settle A>B C>D` is short for all deliveries that follow, but for those from A to B and from C to D.
    """
    if name not in AFTER:
        return ()
    table = protocol(name.partition(":")[0])
    setting = Setting.of(table, scope_for(table, FOUND[name]))
    run = RealRun(setting)
    for text in AFTER[name].split(";"):
        if text.split()[0] == "settle":
            held = [parse_move(setting, f"deliver {ends.replace('>', ' ')}") for ends in text.split()[1:]]
            while ready := [move for move in run.possible() if move[0] == "deliver" and move not in held]:
                run.make(ready[0])
        else:
            run.move(parse_move(setting, text))
    return tuple(spell(setting, move) for move in run.moves)


def hunt(name: str, scope: str) -> Exploration:
    """What random schedules show, shrunk."""
    table = TABLES[name]()
    return explore(table, scope_for(table, scope), Limits(depth=DEPTH), walks=WALKS, after=moves_before(name))
