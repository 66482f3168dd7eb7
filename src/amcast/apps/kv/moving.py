"""Carries the keys of slots that have moved from the group that gave them away to the one that has them now.

`Move` alone changes whose the slots are, and then both groups wait for somebody to bring the keys: whoever moved them,
a gateway whose command has to wait for long, or the next run of the command. What is carried does not change, and a
group takes no part twice, so any number of carriers may do this at the same time, and any of them may stop anywhere.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from amcast.apps.kv.wire import (
    MALFORMED,
    Answer,
    Decide,
    Done,
    Export,
    Import,
    Look,
    Moved,
    StoreRequest,
    Unit,
    View,
    Waits,
    decode_answers,
    encode,
)
from amcast.errors import AmcastError, MulticastFailed, OutcomeUnknown

PAUSE: Final = 0.01  # seconds, before a group is asked again
SECONDS_TO_READ: Final = 1.0  # outside of the order


class Messenger(Protocol):
    """A client of the cluster, as somebody who asks its groups."""

    reads: bool

    def submit(self, dest: tuple[int, ...], payload: bytes, deadline: float | None = None) -> "asyncio.Future[Any]": ...

    async def read(self, group: str, request: bytes, deadline: float | None = None) -> bytes: ...


class Carrier:
    """Asks groups about slots, and brings keys from one to another."""

    def __init__(self, client: Messenger, lock_seconds: float) -> None:
        self._client = client
        self._lock_seconds = lock_seconds  # a lock that is seen for longer belongs to somebody who is gone
        self._seen: dict[bytes, float] = {}

    async def ask(self, dest: tuple[int, ...], unit: Unit, until: float) -> dict[int, Any]:
        """Have groups execute a unit; return what each says. Raises AmcastError."""
        seconds = max(0.0, until - asyncio.get_running_loop().time())
        answers: dict[int, bytes] = await self._client.submit(dest, encode(StoreRequest(0, [unit])), seconds)
        return {group: read_answer(group, answers[group]) for group in dest}

    async def look(self, group: int, unit: Look | Export, until: float) -> Answer:
        """Ask a group about its slots, if possible without a place in the order. Raises AmcastError."""
        if self._client.reads:
            with suppress(AmcastError):
                found = await self._client.read(f"g{group}", encode(StoreRequest(0, [unit])), SECONDS_TO_READ)
                if found:
                    told: Answer = read_answer(group, found)
                    return told
        answer: Answer = (await self.ask((group,), unit, until))[group]
        return answer

    async def view(self, group: int, until: float) -> View:
        answer = await self.look(group, Look(), until)
        assert isinstance(answer, Done), "nothing makes this wait"
        return msgspec.convert(answer.value, View)

    async def finish(self, groups: Iterable[int], seconds: float) -> int:
        """Bring all keys where their slots are, for at most so many seconds; return in how many parts.

        Raises AmcastError."""
        carried = 0
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            views = {group: await self.view(group, until) for group in groups}
            moves = sorted((move, group) for group, view in views.items() for move in view.arriving)
            if not moves:
                break
            if loop.time() > until:
                raise OutcomeUnknown(f"keys of {moves[0][0][2]} slots are still under way to g{moves[0][1]}")
            for (version, source, _), target in moves:
                parts = await self._carry(version, source, target, until)
                carried += parts
                if not parts:
                    await asyncio.sleep(PAUSE)
        known = min(view.version for view in views.values())
        for group, view in views.items():
            for version in view.leaving:  # whoever brought these keys was stopped before the end, …
                if version <= known:  # … unless the other group has not even come to the move
                    await self.ask((group,), Moved(version), until)
        return carried

    async def _carry(self, version: int, source: int, target: int, until: float) -> int:
        """Bring the keys of one move; return in how many parts, 0 if there is nothing to bring, or not yet."""
        part = 0
        while True:
            exported = await self.look(source, Export(version, part), until)
            if isinstance(exported, Waits):
                await self._wait(exported, until)
                continue
            if not isinstance(exported, Done) or exported.value is None:
                return 0  # somebody else has brought them meanwhile, or the move has not come to this group yet
            parts, data = exported.value
            imported = (await self.ask((target,), Import(version, part, parts, data), until))[target]
            if imported.value:
                await self.ask((source,), Moved(version), until)
                return int(parts)
            part = (part + 1) % parts

    async def _wait(self, waits: Waits, until: float) -> None:
        """Wait for what was there before the move; take away the lock of somebody who is gone."""
        now = asyncio.get_running_loop().time()
        if now > until:
            raise OutcomeUnknown("keys of slots that move are locked for too long")
        if waits.txn and now - self._seen.setdefault(waits.txn, now) > self._lock_seconds:
            self._seen[waits.txn] = now
            await self.ask(tuple(waits.dest), Decide(waits.txn, commit=False), until)
        await asyncio.sleep(PAUSE)


def read_answer(group: int, answer: bytes) -> Any:
    """Return what a group says to the one unit of a request. Raises MulticastFailed."""
    if answer == MALFORMED:
        raise MulticastFailed(f"g{group} runs a version of the store that cannot move slots; upgrade all of its nodes")
    try:
        (found,) = decode_answers(answer)
    except (msgspec.MsgspecError, ValueError) as error:
        raise OutcomeUnknown(f"g{group} has sent an answer that cannot be read") from error
    return found
