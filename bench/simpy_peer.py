"""White-Box's message pattern on SimPy: who sends what to whom and when, with counters instead of the protocol.

One multicast to k groups of n: the client's MULTICAST to k leaders, their ACCEPTs to all k·n members, an ACCEPT_ACK of
each member to each leader, DELIVERs within each group, a REPLY per group. Two styles of SimPy: a process with a Store
per server, as its documentation teaches, and bare timeouts with callbacks, the fastest that SimPy can do.
"""

import random
from collections.abc import Callable, Generator
from typing import Any

import simpy


class Pattern:
    """The counters of one run; `send` is how a style of SimPy moves a message."""

    def __init__(self, groups: int, replicas: int, clients: int, dest_groups: int, messages: int, seed: int) -> None:
        self.env = simpy.Environment()
        self.random = random.Random(seed)
        self.groups = [[g * replicas + r for r in range(replicas)] for g in range(groups)]
        self.clients = [groups * replicas + c for c in range(clients)]
        self.dest_groups = dest_groups
        self.quorum = replicas // 2 + 1
        self.left = messages
        self.accepts: dict[tuple[int, int], int] = {}
        self.acks: dict[tuple[int, int], int] = {}
        self.replies: dict[int, int] = {}
        self.dest: dict[int, list[int]] = {}
        self.next_id = 0
        self.handled = 0
        self.send: Callable[[int, str, int, int], None]

    def issue(self, client: int) -> None:
        if self.left == 0:
            return
        self.left -= 1
        mid = self.next_id
        self.next_id += 1
        self.dest[mid] = self.random.sample(range(len(self.groups)), self.dest_groups)
        for g in self.dest[mid]:
            self.send(self.groups[g][0], "multicast", mid, client)

    def handle(self, me: int, kind: str, mid: int, client: int) -> None:
        self.handled += 1
        dest = self.dest[mid]
        if kind == "multicast":
            for g in dest:
                for p in self.groups[g]:
                    self.send(p, "accept", mid, client)
        elif kind == "accept":
            count = self.accepts.pop((me, mid), 0) + 1
            if count < len(dest):
                self.accepts[me, mid] = count
                return
            for g in dest:
                self.send(self.groups[g][0], "ack", mid, client)
        elif kind == "ack":
            count = self.acks.get((me, mid), 0) + 1
            self.acks[me, mid] = count
            if count == len(dest) * self.quorum:
                for p in self.groups[me // len(self.groups[0])]:
                    self.send(p, "deliver", mid, client)
                self.send(client, "reply", mid, client)
            if count == len(dest) * len(self.groups[0]):
                del self.acks[me, mid]
        elif kind == "reply":
            count = self.replies.pop(mid, 0) + 1
            if count < len(dest):
                self.replies[mid] = count
            else:
                self.issue(me)


def run_processes(pattern: Pattern) -> int:
    """A SimPy process with a Store for each server and client; a delay is a process of its own."""
    env = pattern.env
    inboxes = [simpy.Store(env) for _ in range(pattern.clients[-1] + 1)]

    def carry(to: int, item: tuple[str, int, int]) -> Generator[Any, Any, None]:
        yield env.timeout(1.0)
        yield inboxes[to].put(item)

    def server(me: int) -> Generator[Any, Any, None]:
        while True:
            kind, mid, client = yield inboxes[me].get()
            pattern.handle(me, kind, mid, client)

    pattern.send = lambda to, kind, mid, client: env.process(carry(to, (kind, mid, client)))
    for me in range(len(inboxes)):
        env.process(server(me))
    for client in pattern.clients:
        pattern.issue(client)
    env.run()
    return pattern.handled


def run_callbacks(pattern: Pattern) -> int:
    """One timeout with one callback per message."""
    env = pattern.env

    def send(to: int, kind: str, mid: int, client: int) -> None:
        event = env.timeout(1.0)
        event.callbacks.append(lambda _: pattern.handle(to, kind, mid, client))

    pattern.send = send
    for client in pattern.clients:
        pattern.issue(client)
    env.run()
    return pattern.handled
