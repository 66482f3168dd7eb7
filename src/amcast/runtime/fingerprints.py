"""What a node tells whoever compares replicas: its chain at a position, and a hash of its application's state there.

A state is hashed on request only, at the position that was named, so that replicas that go on delivering can be
compared; or, where several messages that travelled as one lead past it, behind these. Its pieces are hashed in another
thread, as those of a snapshot are written in one.
"""

import asyncio
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, Protocol

from amcast.core.application import StateMachine, state_in_pieces
from amcast.runtime.chain import Chain

MOST_WANTED: Final = 8  # positions; the oldest is dropped: nobody makes a node hash without end
PAUSE: Final = 0.02
LONGEST_WAIT: Final = 1.0  # seconds, before an answer that says how far it is


class FingerprintHost(Protocol):
    """The node, as whoever compares it sees it."""

    chain: Chain

    @property
    def app(self) -> StateMachine | None: ...


class StateHash:
    """The hash of a state, when it is done, and the position of the state."""

    def __init__(self, position: int, value: "asyncio.Future[str] | None") -> None:
        self.position = position
        self.value = value  # None: there is no application


class Fingerprints:
    """The states that were asked for. `wanted` is true while there is one that has not been reached."""

    def __init__(self, host: FingerprintHost) -> None:
        self.wanted = False
        self._host = host
        self._hashes: dict[int, StateHash | None] = {}  # by the position that was asked for; None: not reached

    def reached(self) -> None:
        """Take the state if it is wanted. It is that of the end of the chain."""
        position = self._host.chain.position
        due = [at for at, found in self._hashes.items() if found is None and at <= position]
        if due:
            value = None
            if self._host.app is not None:
                pieces = state_in_pieces(self._host.app)
                value = asyncio.get_running_loop().run_in_executor(None, hash_of, pieces)
            self._hashes.update(dict.fromkeys(due, StateHash(position, value)))
        self.wanted = None in self._hashes.values()

    async def at(self, position: int | None) -> dict[str, object]:
        """Return what is known of a position, after a while if it is not reached; of the present one without any."""
        if position is None:
            return self._said(self._host.chain.position)
        if position not in self._hashes and position >= self._host.chain.position:
            self._hashes[position] = None
            while len(self._hashes) > MOST_WANTED:
                del self._hashes[next(iter(self._hashes))]
            self.wanted = True
            self.reached()
        until = asyncio.get_running_loop().time() + LONGEST_WAIT
        while self._pending(position) and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(PAUSE)
        return self._said(position)

    def _pending(self, position: int) -> bool:
        """Return whether more will be known of this position."""
        found = self._hashes.get(position)
        if found is None:
            return position > self._host.chain.position
        return found.value is not None and not found.value.done()

    def _said(self, position: int) -> dict[str, object]:
        chain = self._host.chain
        found = self._hashes.get(position)
        link = chain.at(found.position) if found is not None else chain.up_to(position)
        value = found.value if found is not None else None
        return {
            "position": chain.position,
            "earliest": chain.earliest,
            "at": position,
            "link": link.position if link is not None else None,
            "since": link.since if link is not None else None,
            "chain": f"{link.value:016x}" if link is not None else None,
            "state": value.result() if value is not None and value.done() else None,
            "passed": found is None and position < chain.position,
            "pending": self._pending(position),
        }


def hash_of(pieces: Iterable[bytes]) -> str:
    found = blake2b(digest_size=16)
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()
