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
    Scope("large", "a cycle, and a fourth message across it", (1, 1, 1), (*CYCLE, ("c3", (0, 2))), mute=("Reply",)),
)  # fmt: skip

ONE = (("c0", (0,)),)
TWO = (("c0", (0,)), ("c1", (0,)))

ONE_GROUP = (
    Scope("small", "a leader change during a multicast to a group of three", (3,), ONE, elections=("g0/1",),
          mute=("Reply",)),
    Scope("crash", "the leader crashes during a multicast, and another takes over", (3,), ONE, elections=("g0/1",),
          crashes=("g0/0",), mute=("Reply",)),
    Scope("two-leader-changes", "two members of a group try to lead it during a multicast", (3,), ONE,
          elections=("g0/1", "g0/2"), mute=("Reply",)),
    Scope("timers", "time-outs at a leader and a follower beside a leader change", (3,), ONE, elections=("g0/1",),
          timers=("g0/0", "g0/1"), mute=("Reply",)),
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
    Scope("leader-change", "a leader change in one of two groups during a multicast to both", (3, 1), (("c0", (0, 1)),),
          elections=("g0/1",), mute=("Reply",)),
    Scope("large", "two messages and a leader change in one of two groups", (3, 1), (("c0", (0, 1)), ("c1", (0,))),
          elections=("g0/1",), mute=("Reply",)),
)  # fmt: skip

DURABLE = (
    Scope("restart", "the leader crashes and comes back from its disk while another takes over", (3,), ONE,
          elections=("g0/1",), crashes=("g0/0",), restarts=("g0/0",), mute=("Reply",)),
)  # fmt: skip

MEMBERS = (("g0/0", (0, 1)), ("g1/0", (0, 1)))
RECONFIGURABLE = (
    Scope("reconfiguration", "a group leaves another and joins it again while both multicast", (1, 1), MEMBERS,
          reconfigurations=(("g0/0", "leave", "g1"), ("g0/0", "join", "g1")), orders=False),
)  # fmt: skip


FIFO = (("c0", (0, 1)), ("c0", (1,)), ("c1", (0, 1)))
OPEN = (  # for senders outside of all groups, and orders that are not total
    Scope("small", "a sender's two messages to groups that overlap, beside another's", (1, 1), FIFO, open_loop=True,
          orders=False),
    Scope("crash", "a sender crashes between its sends", (2, 1), FIFO[:2], crashes=("c0",), open_loop=True,
          mute=("Reply", "Alive"), orders=False),
    Scope("tiny", "a sender's two messages, one to both groups", (1, 1), FIFO[:2], open_loop=True, orders=False),
    Scope("large", "members multicast, too", (2, 1), (*FIFO, ("g0/0", (0, 1)), ("g1/0", (0,))), open_loop=True,
          mute=("Reply",), orders=False),
)  # fmt: skip

BLIND = (
    Scope("blind", "a sender crashes, and what follows from its messages passes by a group", (1, 1, 1),
          (("c0", (0,)), ("c0", (1,)), ("g1/0", (0, 2))), whenever=True, crashes=("c0",),
          mute=("Reply", "Alive"), orders=False),
    Scope("detection", "a group of one crashes, and the others hear of it while they multicast", (2, 1),
          (("g0/0", (0, 1)), ("c0", (0, 1))), whenever=True, crashes=("g1/0",),
          detections=(("g0/0", "g1/0"), ("g0/1", "g1/0")), mute=("Reply", "Alive"), orders=False),
)  # fmt: skip

BOTH = (("g0/0", (0,)), ("g0/1", (0,)))
OF_THE_FIRST = (("g0/1", "g0/0"), ("g0/2", "g0/0"))  # who hears of its crash, or suspects it
BROADCAST = (  # to one group, by its members
    Scope("small", "two of three members broadcast", (3,), BOTH, orders=False),
    Scope("tiny", "one of two members broadcasts", (2,), BOTH[:1], orders=False),
    Scope("large", "three of four members broadcast", (4,), (*BOTH, ("g0/2", (0,))), orders=False),
)  # fmt: skip
DETECTED = (
    Scope("crash", "a member crashes while it broadcasts, and so does another", (3,), BOTH, crashes=("g0/0", "g0/2"),
          orders=False),
    Scope("inside", "a member crashes inside its broadcast, and the others hear of it", (3,), BOTH[:1],
          whenever=True, falters=("g0/0",), detections=OF_THE_FIRST, mute=("Alive",), orders=False),
    Scope("beside", "the same, while another member broadcasts", (3,), BOTH, whenever=True, crashes=("g0/0",),
          falters=("g0/0",), detections=OF_THE_FIRST, mute=("Alive",), orders=False),
)  # fmt: skip
SUSPICIOUS = (  # with a detector that may be wrong
    Scope("suspicion", "one of three is suspected for no reason while two broadcast", (3,), BOTH, whenever=True,
          detections=OF_THE_FIRST, mute=("Alive",), orders=False),
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
        scopes = BROADCAST + (DETECTED if table.detector else ()) + (SUSPICIOUS if table.detector == "◇P" else ())
    elif "total" not in table.orders:
        scopes = OPEN + (() if table.blocks else BLIND)
    scopes += tuple(scope for scope in PAIR if scope.name in table.more_scopes)
    if table.durable:
        scopes += DURABLE
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
