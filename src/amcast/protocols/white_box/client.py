"""The sending side of White-Box: l.1 and l.2 of Figure 4, and what they leave open when nobody answers."""

from typing import Final, final

from mypy_extensions import mypyc_attr

from amcast.core.capabilities import Listing, MemberLists
from amcast.core.process import Effects, Params, Process
from amcast.core.requests import NOBODY, Answer, Hint, Multicast, Reply
from amcast.core.topology import Mid, Topology, seq_of
from amcast.core.wire import AppMessage, Message
from amcast.protocols.white_box.configurations import Configurations
from amcast.protocols.white_box.messages import Lists

RESEND_AFTER: Final = 12  # in δ
LONGEST_RESEND: Final = 80


@final
@mypyc_attr(acyclic=True)
class Unanswered:
    """A multicast of this client that some groups have not answered."""

    def __init__(self, m: AppMessage, due: int, delay: int) -> None:
        self.m = m
        self.silent = list(m.dest)
        self.due = due
        self.delay = delay


class WhiteBoxClient(Process, Listing):
    """Sends to the leaders it knows, and to everybody in the groups that stay silent; done after a reply per group."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects) -> None:
        super().__init__(pid, topology, params, out)
        self.cur_leader: dict[int, int] = {}  # of the groups whose leader is not, or was not always, the first one
        self.ballots: dict[int, int] = {}  # in which these lead: who led before does not count any more
        self.configurations = Configurations(topology, params)
        self.requests: dict[Mid, Unanswered] = {}
        self.asked: list[Mid] = []  # in this order …
        self.first = 0  # … and the first of these that may be open
        self.resend_after = RESEND_AFTER * params.delta
        self.ticking = False

    def on_multicast(self, m: AppMessage) -> None:  # l.1
        self.requests[m.mid] = Unanswered(m, self.now + self.resend_after, self.resend_after)
        asked = self.asked
        asked.append(m.mid)
        first = self.first
        while asked[first] not in self.requests:
            first += 1
        m.done = seq_of(asked[first])
        if first > 64 and first * 2 > len(asked):
            del asked[:first]
            first = 0
        self.first = first
        self.send(self.asked_first(m), Multicast(m))  # l.2
        self.keep_ticking()

    def asked_first(self, m: AppMessage) -> tuple[int, ...]:
        return tuple([self.leader_in(g) for g in m.dest])

    def leader_in(self, g: int) -> int:
        return self.cur_leader.get(g, self.topology.groups[g][0])

    def asked_again(self, request: Unanswered) -> tuple[int, ...]:
        return self.configurations.members_of(tuple(request.silent))

    def heeds(self, request: Unanswered, g: int) -> bool:
        """Return True if a new leader of g should hear of this request."""
        return g in request.silent

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Reply):
            self.on_reply(msg)
        elif isinstance(msg, Hint):
            self.on_hint(msg)
        elif isinstance(msg, Lists):
            self.configurations.merge(msg.rows)

    def known(self) -> tuple[int, ...]:
        return self.configurations.known

    def lists(self) -> MemberLists:
        return self.configurations.rows()

    def on_lists_learnt(self, lists: MemberLists) -> None:
        self.configurations.merge(lists)
        for g in sorted({row[0] for row in lists}):
            pids = self.configurations.newest(g).pids
            if self.leader_in(g) not in pids:
                self.cur_leader[g] = pids[0]

    def on_reply(self, msg: Reply) -> None:
        request = self.requests.get(msg.mid)
        if request is not None and msg.g in request.silent:
            request.silent.remove(msg.g)
            if not request.silent:
                del self.requests[msg.mid]
                self.out.completed.append(msg.mid)
        self.follow(msg)

    def on_hint(self, msg: Hint) -> None:
        request = self.requests.get(msg.mid)
        if self.follow(msg) and request is not None and self.heeds(request, msg.g):
            self.send_one(msg.leader, Multicast(request.m))

    def follow(self, msg: Answer) -> bool:
        """Take note of who leads a group; True if somebody else does than was known, in the same ballot.

        What was asked of another leader may be lost, so a new one is asked for everything at once. The same process
        may lead again, and still have what was asked of it, unless it says that it has just begun.
        """
        g = msg.g
        b = self.ballots.get(g, 0)
        other = msg.leader != self.leader_in(g)
        if msg.ballot < b:
            return False
        if other:
            self.cur_leader[g] = msg.leader
        if msg.ballot == b:
            return other
        self.ballots[g] = msg.ballot
        for request in self.requests.values() if other or msg.mid == NOBODY else ():
            if self.heeds(request, g):
                self.begin_again(request)
                self.send_one(msg.leader, Multicast(request.m))
        return False

    def begin_again(self, request: Unanswered) -> None:
        """Let no more time pass before a request is sent again than after it was sent first."""
        request.delay = self.resend_after
        request.due = self.now + request.delay

    def keep_ticking(self) -> None:
        if not self.ticking:
            self.ticking = True
            self.set_timer("resend", self.resend_after, self.resend_after)

    def on_timer(self, name: str) -> None:
        self.ticking = False
        for request in self.requests.values():
            if request.due <= self.now:
                self.resend(request)
        if self.requests:
            self.keep_ticking()

    def resend(self, request: Unanswered) -> None:
        request.delay = min(2 * request.delay, LONGEST_RESEND * self.params.delta)
        request.due = self.now + request.delay
        self.send(self.asked_again(request), Multicast(request.m))

    def on_disconnect(self) -> None:
        for request in self.requests.values():
            self.begin_again(request)
            self.send(self.asked_again(request), Multicast(request.m))

    def on_abandon(self, mid: Mid) -> None:
        self.requests.pop(mid, None)

    def idle(self) -> bool:
        return not self.requests
