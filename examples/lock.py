"""Locks with an end, and the election of a leader: whoever holds the lock of that name.

    amcast cluster init locks --groups 1 --app lock:Locks           # with PYTHONPATH=examples

A lock comes with a token that only grows. A holder may be paused for longer than its lock lasts; so what it writes to
must refuse a smaller token than it has seen.
"""

import json
import time

from amcast import Client, Delivery, Rejected
from amcast.core.application import AllOrNothing, Dated


class Locks(AllOrNothing, Dated):
    """The state machine of a group. Requests say what time it is, and its clock is the latest that it was told."""

    def __init__(self, group: int, groups: int) -> None:
        self.now = 0
        self.held: dict[str, tuple[str, int, int]] = {}  # owner, until when, token

    def stated_ms(self, payload: bytes) -> int:
        """A replica refuses a request that is far ahead of its own clock: nobody ends the locks of others so."""
        try:
            return int(json.loads(payload)["now"])
        except (ValueError, KeyError, TypeError):
            return 0

    def apply(self, delivery: Delivery) -> bytes:
        match json.loads(delivery.payload):
            case {"now": int(now), "lock": str(name), "owner": str(owner), "ms": int(ms)}:
                pass
            case _:
                raise Rejected('expected {"now": …, "lock": …, "owner": …, "ms": …}')
        self.now = max(self.now, now)
        holder, until, token = self.held.get(name, (owner, 0, 0))
        if holder != owner and until > self.now:
            return json.dumps([holder, 0]).encode()
        if holder != owner or until <= self.now or ms <= 0:
            token = delivery.position + 1  # of a new holder, or of one that was late
        self.held[name] = (owner, self.now + ms, token)
        return json.dumps([owner, token]).encode()

    def snapshot(self) -> bytes:
        return json.dumps([self.now, {name: self.held[name] for name in sorted(self.held)}]).encode()

    def restore(self, state: bytes) -> None:
        self.now, held = json.loads(state)
        self.held = {name: (owner, until, token) for name, (owner, until, token) in held.items()}


async def acquire(client: Client, name: str, owner: str, seconds: float, now: float | None = None) -> int:
    """Take a lock, or keep it for longer; return its token, or 0 if somebody else has it. 0 seconds: give it back."""
    now = time.time() if now is None else now
    request = {"now": int(now * 1000), "lock": name, "owner": owner, "ms": int(seconds * 1000)}
    answers = await client.multicast(["g0"], json.dumps(request).encode())
    token: int = json.loads(answers["g0"])[1]
    return token


async def lead(client: Client, owner: str, seconds: float = 5.0, now: float | None = None) -> int:
    """Become the leader, or stay it: to be called well before `seconds` are over. Return the token, or 0."""
    return await acquire(client, "leader", owner, seconds, now)
