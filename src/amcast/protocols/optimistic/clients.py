"""Clients of Baseline and Optimistic: they belong to no group, and hand their messages to one that may send them."""

from amcast.core.process import Effects, Params
from amcast.core.topology import Topology, sender_of
from amcast.core.wire import AppMessage, Message
from amcast.protocols.optimistic.messages import Refusal
from amcast.protocols.optimistic.options import DEFAULTS, Options
from amcast.protocols.white_box.client import Unanswered, WhiteBoxClient


def source_of(m: AppMessage, options: Options, groups: int) -> int:
    """Return the group whose members send a client's message: a destination if one may send it; -1 if no group may."""
    relation = options.senders_to
    may = [g for g in range(groups) if relation is None or all(g in relation[h] for h in m.dest)]
    among = [g for g in may if g in m.dest] or may
    return among[sender_of(m.mid) % len(among)] if among else -1


class OamClient(WhiteBoxClient):
    """Hands messages to the leader of a group that may send them; to everybody there if some destination is silent."""

    def __init__(self, pid: int, topology: Topology, params: Params, out: Effects, options: Options = DEFAULTS) -> None:
        super().__init__(pid, topology, params, out)
        self.options = options

    def source(self, m: AppMessage) -> int:
        return source_of(m, self.options, len(self.topology.groups))

    def asked_first(self, m: AppMessage) -> tuple[int, ...]:
        g = self.source(m)
        return (self.leader_in(g),) if g >= 0 else ()

    def asked_again(self, request: Unanswered) -> tuple[int, ...]:
        groups = sorted({self.source(request.m), *request.silent} - {-1})
        return self.topology.members_of(tuple(groups))

    def heeds(self, request: Unanswered, g: int) -> bool:
        return g == self.source(request.m)

    def on_message(self, sender: int, msg: Message) -> None:
        if isinstance(msg, Refusal):
            if self.requests.pop(msg.mid, None) is not None:
                self.out.completed.append(msg.mid)
        else:
            super().on_message(sender, msg)
