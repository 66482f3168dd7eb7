"""The scopes that `amcast explore` knows: for every protocol a small one, and what else it is worth exploring."""

from dataclasses import replace

from amcast.core.protocol import Protocol
from amcast.errors import UsageError
from amcast.explorer.scope import Scope

ONE_EACH = (("c0", (0, 1)), ("c1", (0, 1)))
CYCLE = (("c0", (0, 1)), ("c1", (1, 2)), ("c2", (0, 2)))

SINGLE = (
    Scope("small", "two messages to the same two groups", (1, 1), ONE_EACH),
    Scope("cycle", "three messages whose destinations form a cycle", (1, 1, 1), CYCLE),
    Scope("overlap", "a message to three groups across two to pairs of them", (1, 1, 1),
          (("c0", (0, 1, 2)), ("c1", (0, 1)), ("c2", (1, 2))), mute=("Reply",)),
    Scope("repeated", "two senders multicast one after the other to groups that overlap", (1, 1, 1),
          (("c0", (0, 1)), ("c0", (1, 2)), ("c1", (0, 2)), ("c1", (0, 1, 2)))),
    Scope("large", "a cycle, and a fourth message across it", (1, 1, 1), (*CYCLE, ("c3", (0, 2))), mute=("Reply",)),
)  # fmt: skip

ONE = (("c0", (0,)),)
TWO = (("c0", (0,)), ("c1", (0,)))

THREE = ("g0/0", "g0/1", "g0/2")
TO_CLIENTS = tuple((member, client) for member in THREE for client in ("c0", "c1"))
# Beyond what a search sees to the end: walks go there after it is cut.
LONG = (
    Scope("replies", "replies are lost, and clients ask again before and after a leader change", (3,),
          (("c0", (0,)), ("c0", (0,)), ("c1", (0,))), elections=("g0/1", "c0", "c0", "c1"), losses=TO_CLIENTS,
          timers=THREE * 2),
    Scope("forgetting", "the leader crashes, two others try to lead, and members forget what all have", (3,),
          (("c0", (0,)), ("c0", (0,)), ("c1", (0,))), elections=("g0/1", "g0/2", "g0/1", "c0", "c1"),
          crashes=("g0/0", "c0"), timers=THREE * 4),
    Scope("duel", "each member tries to lead twice while two messages are under way", (3,), TWO,
          elections=THREE * 2, crashes=("c0",), timers=THREE, mute=("Reply",)),
)  # fmt: skip
LONG_GROUPS = (
    Scope("resend", "clients ask again while the leader crashes and members forget", (3, 1),
          (("c0", (0, 1)), ("c1", (0,))), elections=("g0/1", "g0/2", "c0", "c0", "c1"), crashes=("g0/0",),
          timers=(*THREE, "g1/0") * 4, mute=("Reply",)),
    Scope("storm", "leaders of two groups change or crash beside three messages", (3, 3),
          (("c0", (0, 1)), ("c1", (1,)), ("c0", (0, 1)), ("c2", (0, 1))),
          elections=("g0/1", "g0/2", "g1/1", "g1/2", "c0", "c1", "c2"), crashes=(*THREE, "g1/0", "c1"),
          timers=(*THREE, "g1/0", "g1/1", "g1/2") * 2),
    Scope("triangle", "messages to pairs of three groups, and a new leader that crashes", (3, 1, 1),
          (("c0", (0, 1)), ("c1", (0, 2)), ("c2", (1, 2))), elections=("g0/1", "g0/2", "g0/1"), crashes=("g0/1",),
          timers=(*THREE, "g1/0", "g2/0"), mute=("Reply",)),
    Scope("floors", "a leader tells what it has delivered, and crashes before its group has", (1, 3), (("c0", (0, 1)),),
          elections=("g1/1",), crashes=("g1/0",), timers=("g1/0", "g0/0") * 2, mute=("Reply",)),
    Scope("ticks", "members of two groups of one forget, and clients ask again", (1, 1),
          (*ONE_EACH, ("c0", (0,)), ("c1", (1,))), elections=("c0", "c0", "c1"), timers=("g0/0", "g1/0") * 4,
          losses=(("g0/0", "c0"), ("g1/0", "c0"))),
)  # fmt: skip

ONE_GROUP = (
    Scope("small", "a leader change during a multicast to a group of three", (3,), ONE, elections=("g0/1",),
          mute=("Reply",)),
    Scope("crash", "the leader crashes during a multicast, and another takes over", (3,), ONE, elections=("g0/1",),
          crashes=("g0/0",), mute=("Reply",)),
    Scope("two-leader-changes", "two members of a group try to lead it during a multicast", (3,), ONE,
          elections=("g0/1", "g0/2"), mute=("Reply",)),
    Scope("timers", "time-outs at a leader and a follower beside a leader change", (3,), ONE, elections=("g0/1",),
          timers=("g0/0", "g0/1"), mute=("Reply",)),
    *LONG,
    Scope("refused", "the leader crashes, its listener refuses, and the next one tells the client", (3,), ONE,
          crashes=("g0/0",), refusals=(("g0/1", "g0/0"), ("g0/2", "g0/1")), news=True, mute=("Reply",)),
    Scope("large", "two messages and two leader changes", (3,), TWO, elections=("g0/1", "g0/2"), mute=("Reply",)),
)  # fmt: skip

GROUPS_OF_ONE = (
    Scope("conflict", "two messages to the same two groups of one", (1, 1), ONE_EACH),
    Scope("cycle", "three messages whose destinations form a cycle", (1, 1, 1), CYCLE, mute=("Reply",)),
    Scope("client-crash", "a client crashes between its sends, beside another message", (1, 1), ONE_EACH,
          crashes=("c0",), mute=("Reply",)),
)  # fmt: skip
GROUPS = (
    *ONE_GROUP[:-1],
    *GROUPS_OF_ONE,
    *LONG_GROUPS,
    Scope("leader-change", "a leader change in one of two groups during a multicast to both", (3, 1), (("c0", (0, 1)),),
          elections=("g0/1",), mute=("Reply",)),
    Scope("large", "two messages and a leader change in one of two groups", (3, 1), (("c0", (0, 1)), ("c1", (0,))),
          elections=("g0/1",), mute=("Reply",)),
)  # fmt: skip

DURABLE = (
    Scope("restart", "the leader crashes and comes back from its disk while another takes over", (3,), ONE,
          elections=("g0/1",), crashes=("g0/0",), restarts=("g0/0",), mute=("Reply",)),
    Scope("disks", "members make snapshots, crash, come back from their disks and try to lead", (3,),
          (("c0", (0,)), ("c0", (0,)), ("c1", (0,))), elections=("g0/1", "g0/2", "c0"), crashes=THREE,
          restarts=THREE * 2, snapshots=THREE, timers=(*THREE, *THREE, "c0")),
    Scope("laggards", "members that miss much copy snapshots, connections break, and who crashed comes back", (3,),
          (("c0", (0,)), ("c0", (0,)), ("c1", (0,)), ("c1", (0,))), elections=("g0/1", "g0/2", "c0", "c1"),
          crashes=THREE, restarts=THREE * 2, snapshots=THREE, timers=(*THREE, *THREE, "c0"), tail_bytes=1,
          losses=tuple((a, b) for a in THREE for b in THREE if a != b)),
    Scope("oblivion", "a disk loses its end, or everything, while its replica is down", (3, 1),
          (*ONE_EACH, ("c0", (0,))), elections=("g0/1", "g0/2", "g0/0", "c0"), crashes=THREE, restarts=THREE * 2,
          timers=(*THREE, "g1/0") * 2, older=THREE, lost=THREE, snapshots=THREE[:1]),
    Scope("reconnect", "connections within and between groups break, and leaders change", (3, 1),
          (*ONE_EACH, ("c0", (0,))), elections=(*THREE, "c0"), timers=(*THREE, "g1/0") * 2,
          losses=(*((a, b) for a in THREE for b in THREE if a != b), ("g0/0", "g1/0"), ("g1/0", "g0/0"))),
)  # fmt: skip

MEMBERS = (("g0/0", (0, 1)), ("g1/0", (0, 1)))
RECONFIGURABLE = (
    Scope("reconfiguration", "a group leaves another and joins it again while both multicast", (1, 1), MEMBERS,
          reconfigurations=(("g0/0", "leave", "g1"), ("g0/0", "join", "g1")), orders=False),
    Scope("lagging", "a group leaves and joins again, and a member of it hears of it late", (2, 1),
          (("g0/1", (1,)), ("g0/0", (1,)), ("g0/1", (0, 1)), ("g1/0", (0, 1))), whenever=True,
          reconfigurations=(("g0/0", "leave", "g1"), ("g0/0", "join", "g1")), timers=("g0/0", "g1/0") * 2,
          orders=False),
    Scope("rejoining", "a group leaves, joins twice, leaves and joins again, while both multicast", (1, 1),
          (("g1/0", (0,)), ("g0/0", (0,))), whenever=True, timers=("g0/0", "g0/0", "g1/0"), orders=False,
          reconfigurations=tuple(("g1/0", wish, "g0") for wish in ("leave", "join", "join", "leave", "join"))),
    Scope("stopped", "a member multicasts to its own group, then to another, and crashes", (3, 1),
          (("g0/1", (0,)), ("g0/1", (1,)), ("g0/2", (0, 1))), whenever=True, crashes=("g0/1",), timers=("g1/0",) * 3,
          orders=False),
    Scope("learners", "members multicast while leaders change and crash, and another group learns", (3, 1),
          (("g0/0", (1,)), ("g0/1", (0, 1)), ("g1/0", (0, 1)), ("g0/2", (0,)), ("g0/1", (1,))), whenever=True,
          elections=THREE, crashes=THREE, timers=(*THREE, "g1/0") * 3, orders=False),
)  # fmt: skip


FIFO = (("c0", (0, 1)), ("c0", (1,)), ("c1", (0, 1)))
OPEN = (  # for senders outside of all groups, and orders that are not total
    Scope("small", "a sender's two messages to groups that overlap, beside another's", (1, 1), FIFO, open_loop=True,
          orders=False),
    Scope("crash", "a sender crashes between its sends", (2, 1), FIFO[:2], crashes=("c0",), open_loop=True,
          mute=("Reply", "Alive"), orders=False),
    Scope("tiny", "a sender's two messages, one to both groups", (1, 1), FIFO[:2], open_loop=True, orders=False),
    Scope("repeated", "a sender's two messages to a group of two, beside another's", (2,),
          (("c0", (0,)), ("c0", (0,)), ("c1", (0,))), open_loop=True, orders=False),
    Scope("overtaking", "messages of two senders, the later ones to one group more", (2, 1),
          (("c0", (0,)), ("c0", (0, 1)), ("c1", (0, 1)), ("c1", (0,))), whenever=True, orders=False),
    Scope("chain", "what follows from a message passes by a group", (1, 2, 1),
          (("c0", (0,)), ("c0", (1,)), ("g1/0", (2,)), ("g1/0", (0, 2)), ("g1/1", (0,)), ("g2/0", (0, 1)),
           ("g0/0", (1, 2))), whenever=True, orders=False),
    Scope("large", "members multicast, too", (2, 1), (*FIFO, ("g0/0", (0, 1)), ("g1/0", (0,))), open_loop=True,
          mute=("Reply",), orders=False),
)  # fmt: skip

TWO_PAIRS = ("g0/0", "g0/1", "g1/0", "g1/1")
BLIND = (
    Scope("blind", "a sender crashes, and what follows from its messages passes by a group", (1, 1, 1),
          (("c0", (0,)), ("c0", (1,)), ("g1/0", (0, 2))), whenever=True, crashes=("c0",),
          mute=("Reply", "Alive"), orders=False),
    Scope("detection", "a group of one crashes, and the others hear of it while they multicast", (2, 1),
          (("g0/0", (0, 1)), ("c0", (0, 1))), whenever=True, crashes=("g1/0",),
          detections=(("g0/0", "g1/0"), ("g0/1", "g1/0")), mute=("Reply", "Alive"), orders=False),
    Scope("mortal", "a sender and members of two groups crash, and others hear of it", (2, 2),
          (("c0", (0, 1)), ("c0", (0,)), ("g0/0", (1,)), ("g0/0", (0, 1))), whenever=True,
          crashes=("c0", "g0/1", "g1/0", "g1/1"), most_crashes=3, orders=False,
          detections=tuple((a, b) for a in TWO_PAIRS for b in TWO_PAIRS if a != b)),
)  # fmt: skip

BOTH = (("g0/0", (0,)), ("g0/1", (0,)))
FOUR = (*THREE, "g0/3")
OF_THE_FIRST = (("g0/1", "g0/0"), ("g0/2", "g0/0"))  # who hears of its crash, or suspects it
BROADCAST = (  # to one group, by its members
    Scope("small", "two of three members broadcast", (3,), BOTH, orders=False),
    Scope("tiny", "one of two members broadcasts", (2,), BOTH[:1], orders=False),
    Scope("rounds", "three members broadcast at any time, two of them again", (3,), (*BOTH, *BOTH, ("g0/2", (0,))),
          whenever=True, orders=False),
    Scope("clients", "two clients ask, and ask others", (3,),
          (("c0", (0,)), ("c1", (0,)), ("c0", (0,)), ("g0/2", (0,))), whenever=True, timers=("c0", "c0", "c1"),
          orders=False),
    Scope("large", "three of four members broadcast", (4,), (*BOTH, ("g0/2", (0,))), orders=False),
)  # fmt: skip
DETECTED = (
    Scope("crash", "a member crashes while it broadcasts, and so does another", (3,), BOTH, crashes=("g0/0", "g0/2"),
          orders=False),
    Scope("inside", "a member crashes inside its broadcast, and the others hear of it", (3,), BOTH[:1],
          whenever=True, falters=("g0/0",), detections=OF_THE_FIRST, mute=("Alive",), orders=False),
    Scope("beside", "the same, while another member broadcasts", (3,), BOTH, whenever=True, crashes=("g0/0",),
          falters=("g0/0",), detections=OF_THE_FIRST, mute=("Alive",), orders=False),
    Scope("anywhere", "any of four members crashes inside a step while all broadcast, and the others hear of it", (4,),
          tuple((member, (0,)) for member in (*FOUR, *FOUR[:2])), whenever=True, crashes=FOUR, falters=FOUR,
          detections=tuple((a, b) for a in FOUR for b in FOUR if a != b), orders=False),
)  # fmt: skip
ONE_BY_ONE = (  # with a detector that is never wrong
    Scope("views", "a member crashes, and another inside what follows, while two broadcast", (4,),
          (*BOTH, ("g0/0", (0,))), whenever=True, crashes=("g0/3", "g0/2"), falters=("g0/2",), most_crashes=2,
          detections=tuple((a, b) for a in FOUR for b in ("g0/2", "g0/3") if a != b), mute=("Alive",), orders=False),
)  # fmt: skip
SUSPICIOUS = (  # with a detector that may be wrong
    Scope("suspicion", "one of three is suspected for no reason while two broadcast", (3,), BOTH, whenever=True,
          detections=OF_THE_FIRST, mute=("Alive",), orders=False),
)  # fmt: skip
JOINED = (  # by a server that is no member at first
    Scope("newcomer", "one of three crashes, and has told one that joins what the others then do without it", (4,),
          BOTH[:1], whenever=True, spare=1, crashes=("g0/0",), detections=OF_THE_FIRST,
          reconfigurations=(("g0/3", "join", "g0"),), mute=("Alive",), orders=False),
)  # fmt: skip
DURABLE_ROUNDS = (
    Scope("comes-back", "one of three crashes and comes back from its disk while two broadcast", (3,), BOTH,
          whenever=True, crashes=("g0/0",), restarts=("g0/0",), snapshots=("g0/0",), timers=THREE, mute=("Alive",),
          orders=False),
)  # fmt: skip
PAIR = (
    Scope("pair", "one of two is suspected for no reason while it broadcasts", (2,), BOTH[:1], whenever=True,
          detections=OF_THE_FIRST[:1], mute=("Alive",), orders=False),
)  # fmt: skip


def with_time(scope: Scope) -> Scope:
    """Give a member of each group a time-out: messages wait for a window, and only time-outs move clocks."""
    return replace(scope, timers=tuple(f"g{g}/0" for g in range(len(scope.groups))))


def scopes_of(table: Protocol) -> dict[str, Scope]:
    """Return the scopes of a protocol by name, the smallest first."""
    scopes: tuple[Scope, ...] = SINGLE if table.single_replica else ONE_GROUP if table.single_group else GROUPS
    if table.broadcast:
        scopes = BROADCAST + (DETECTED if table.detector else ())
        scopes += SUSPICIOUS if table.detector == "◇P" else ()
        scopes += tuple(
            scope
            for scope in ONE_BY_ONE
            if table.detector == "P" and table.bears(sum(scope.groups)) >= scope.most_crashes
        )
        scopes += JOINED if table.joins else ()
    elif "total" not in table.orders:
        scopes = OPEN + (() if table.blocks else BLIND)
    scopes += tuple(scope for scope in PAIR if scope.name in table.more_scopes)
    if table.durable:
        scopes += DURABLE_ROUNDS if table.broadcast else DURABLE
    if table.single_group:
        scopes = tuple(scope for scope in scopes if len(scope.groups) == 1)
    if table.reconfigures:
        scopes += RECONFIGURABLE
    if table.guesses:
        scopes = tuple(with_time(scope) if scope in GROUPS_OF_ONE else scope for scope in scopes)
    return {scope.name: scope for scope in scopes}


def scope_named(table: Protocol, name: str) -> Scope:
    scopes = scopes_of(table)
    if name not in scopes:
        raise UsageError(f"unknown scope {name!r} of {table.name}: expected one of {', '.join(scopes)}")
    return scopes[name]
