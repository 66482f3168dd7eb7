"""AllConcur: leaderless atomic broadcast over a digraph that survives failures, with early termination by tracking.

It is AllConcur+ that never leaves the reliable mode: every round is reliable and delivered when it is complete, and a
server with nothing to send waits for the first message of a round or a failure notification. Counts on a perfect
failure detector; uniform if nobody is suspected before all that it sent is handled.

Paper: Poke, Hoefler, Glass, "AllConcur: Leaderless Concurrent Atomic Broadcast", as described in §III-A of Poke, Glass,
"A Dual Digraph Approach for Leaderless Atomic Broadcast".

Latency in message delays: the diameter of G_R. Every server receives each message d times.

`AllConcurEA` and `AllConcurPlusEA` need an eventually perfect detector only: a server that has everybody's message of a
reliable round tells all, on G_R and on its transpose, and delivers when as many others as make a majority have said so.
What AllConcur+ holds or skips is delivered together with the next reliable round.

Departures of these two: a round is delivered whole or not at all. The paper's servers vote on what tracking left over,
and stop when no majority has the same; so a wrong suspicion, or halves that do not hear each other for a while, ended
the service. Here members decide by ballots (`ballots`) how the eon ends when a message is lost or rounds are stuck,
and who was removed comes back. All wait while no majority hears each other. Servers come back from their disks, one by
one or all together, or without them (`durable_rounds`).
"""

from dataclasses import replace
from typing import Final, final

from amcast.core.protocol import Protocol
from amcast.core.wire import Message
from amcast.protocols.allconcur.allconcur_plus import UNIFORM_ROW, AllConcurPlus
from amcast.protocols.allconcur.ballots import MESSAGES as BALLOTS
from amcast.protocols.allconcur.durable_rounds import MESSAGES as RECOVERY
from amcast.protocols.allconcur.durable_rounds import DurableServer
from amcast.protocols.allconcur.messages import MESSAGES as PLUS_MESSAGES
from amcast.protocols.allconcur.votes import Vote

MESSAGES: Final[tuple[type[Message], ...]] = (*PLUS_MESSAGES, Vote, *BALLOTS, *RECOVERY)


@final
class AllConcur(AllConcurPlus):
    always_reliable = True


class AllConcurPlusEA(DurableServer):
    """AllConcur+ that needs an eventually perfect detector only. See above."""


@final
class AllConcurEA(AllConcurPlusEA):
    always_reliable = True


ROW: Final[Protocol] = replace(
    UNIFORM_ROW,
    name="allconcur",
    title="AllConcur",
    replica=AllConcur,
    tolerates="f crashes, G_R of degree f + 1",
    latency="diameter of G_R",
    least_delivered=92,
)
EA_ROW: Final[Protocol] = replace(
    ROW,
    name="allconcur_ea",
    title="AllConcur with eventual accuracy",
    replica=AllConcurEA,
    tolerates="f crashes, G_R of degree f + 1; suspicions",
    latency="2 diameters of G_R",
    messages=MESSAGES,
    detector="◇P",
    least_delivered=65,  # the weather of its seeds is wild
    more_scopes=("pair",),
)
PLUS_EA_ROW: Final[Protocol] = replace(
    EA_ROW,
    name="allconcur_plus_ea",
    title="AllConcur+ with eventual accuracy",
    replica=AllConcurPlusEA,
    latency="2 tree depths and more",
    least_delivered=60,
    more_scopes=(),
)
