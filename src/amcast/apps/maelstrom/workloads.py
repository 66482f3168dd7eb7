"""What the replicated group executes in each workload: small deterministic machines, one request at a time.

A request is the body that a client sent, as it is. Values are JSON of any kind and go back byte for byte; where they
are compared, their canonical form is, so that 1, 1.0, true and "1" are four things.
"""

import json
import re
from functools import reduce
from operator import or_
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw

from amcast.apps.maelstrom.lines import BAD, MALFORMED, NO_SUCH_KEY, NOT_SUPPORTED, PRECONDITION_FAILED, Body, error
from amcast.errors import WorkloadRefused

POLLED: Final = 100  # messages of a key in one answer
DEEPEST: Final = 100  # arrays and objects in each other: what one node can decode, all must
STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')


class WorkloadRequest(msgspec.Struct, tag_field="type", tag=str.lower):
    pass


def same(value: Raw) -> str:
    """Return a form that is equal for equal values."""
    return json.dumps(json.loads(bytes(value)), sort_keys=True)


def depth(body: bytes) -> int:
    if body.count(b"[") + body.count(b"{") <= DEEPEST:
        return 0
    deepest = level = 0
    for character in STRING.sub(b"", body):
        level += (character in b"[{") - (character in b"]}")
        deepest = max(deepest, level)
    return deepest


class Workload:
    requests: tuple[type[WorkloadRequest], ...] = ()

    def __init__(self) -> None:
        self._known = {str(kind.__struct_config__.tag) for kind in self.requests}
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(reduce(or_, self.requests))

    def parse(self, kind: str, body: bytes) -> WorkloadRequest:
        """Return the request in this body. Raises WorkloadRefused."""
        if kind not in self._known:
            raise WorkloadRefused(NOT_SUPPORTED, f"request {kind!r}: expected one of {', '.join(sorted(self._known))}")
        try:
            found: WorkloadRequest = self._decoder.decode(body)
            if depth(body) > DEEPEST:
                raise ValueError(f"nested more than {DEEPEST} deep")
            self.check(found)
        except BAD as problem:
            raise WorkloadRefused(MALFORMED, f"{kind}: {problem}") from None
        return found

    def check(self, request: WorkloadRequest) -> None:
        """Raise if `execute` would meet a value that it cannot compare."""

    def apply(self, body: bytes) -> Body:
        """Execute a request that was parsed before it was multicast."""
        return self.execute(self._decoder.decode(body))

    def execute(self, request: Any) -> Body:
        raise NotImplementedError


# echo


class Echo(WorkloadRequest):
    echo: Raw


class Echoes(Workload):
    requests = (Echo,)

    def execute(self, request: Any) -> Body:
        return {"type": "echo_ok", "echo": request.echo}


# broadcast


class Broadcast(WorkloadRequest):
    message: Raw


class Read(WorkloadRequest):
    pass


class Topology(WorkloadRequest):
    topology: dict[str, list[str]]


class Broadcasts(Workload):
    """Who is a neighbour of whom is none of its business: all nodes are one group."""

    requests = (Broadcast, Read, Topology)

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Raw] = []

    def execute(self, request: Any) -> Body:
        match request:
            case Broadcast(message):
                self.messages.append(message.copy())
                return {"type": "broadcast_ok"}
            case Topology():
                return {"type": "topology_ok"}
            case _:
                return {"type": "read_ok", "messages": self.messages}


# lin-kv


class ReadKey(WorkloadRequest, tag="read"):
    key: Raw


class Write(WorkloadRequest):
    key: Raw
    value: Raw


class Cas(WorkloadRequest, rename={"old": "from", "new": "to"}):
    key: Raw
    old: Raw
    new: Raw
    create_if_not_exists: bool = False


class Registers(Workload):
    requests = (ReadKey, Write, Cas)

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, Raw] = {}

    def check(self, request: Any) -> None:
        for value in msgspec.structs.astuple(request):
            if isinstance(value, Raw):
                same(value)

    def execute(self, request: Any) -> Body:
        key = same(request.key)
        found = self.values.get(key)
        if isinstance(request, Write):
            self.values[key] = request.value.copy()
            return {"type": "write_ok"}
        if found is None and not (isinstance(request, Cas) and request.create_if_not_exists):
            return error(NO_SUCH_KEY, f"there is no key {key}")
        if isinstance(request, ReadKey):
            return {"type": "read_ok", "value": found}
        if found is not None and same(found) != same(request.old):
            return error(PRECONDITION_FAILED, f"key {key} is {same(found)}, expected {same(request.old)}")
        self.values[key] = request.new.copy()
        return {"type": "cas_ok"}


# txn-list-append


class Txn(WorkloadRequest):
    txn: list[tuple[Literal["r", "append"], Raw, Raw]]


class Lists(Workload):
    requests = (Txn,)

    def __init__(self) -> None:
        super().__init__()
        self.lists: dict[str, list[Raw]] = {}

    def check(self, request: Any) -> None:
        for _, key, _ in request.txn:
            same(key)

    def execute(self, request: Any) -> Body:
        done: list[tuple[str, Raw, Raw | list[Raw] | None]] = []
        for kind, key, value in request.txn:
            if kind == "append":
                self.lists.setdefault(same(key), []).append(value.copy())
                done.append((kind, key, value))
            else:
                found = self.lists.get(same(key))
                done.append((kind, key, None if found is None else found.copy()))
        return {"type": "txn_ok", "txn": done}


# kafka

Offsets = dict[str, int]


class Send(WorkloadRequest):
    key: str
    msg: Raw


class Poll(WorkloadRequest):
    offsets: Offsets


class CommitOffsets(WorkloadRequest, tag="commit_offsets"):
    offsets: Offsets


class ListCommittedOffsets(WorkloadRequest, tag="list_committed_offsets"):
    keys: list[str]


class Logs(Workload):
    requests = (Send, Poll, CommitOffsets, ListCommittedOffsets)

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[str, list[Raw]] = {}
        self.committed: Offsets = {}

    def execute(self, request: Any) -> Body:
        match request:
            case Send(key, msg):
                log = self.logs.setdefault(key, [])
                log.append(msg.copy())
                return {"type": "send_ok", "offset": len(log) - 1}
            case Poll(offsets):
                return {"type": "poll_ok", "msgs": {key: self._from(key, first) for key, first in offsets.items()}}
            case CommitOffsets(offsets):
                for key, offset in offsets.items():
                    self.committed[key] = max(offset, self.committed.get(key, offset))
                return {"type": "commit_offsets_ok"}
            case _:
                known = {key: self.committed[key] for key in request.keys if key in self.committed}
                return {"type": "list_committed_offsets_ok", "offsets": known}

    def _from(self, key: str, first: int) -> list[tuple[int, Raw]]:
        first = max(first, 0)
        return list(enumerate(self.logs.get(key, [])[first : first + POLLED], first))


WORKLOADS: Final[dict[str, type[Workload]]] = {
    "echo": Echoes,
    "broadcast": Broadcasts,
    "lin-kv": Registers,
    "txn-list-append": Lists,
    "kafka": Logs,
}
