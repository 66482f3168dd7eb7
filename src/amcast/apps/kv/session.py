"""One connection to the store: its transaction, its watched keys, and the order of its replies.

Commands that arrived together go out together (`batching.py`); the next ones go when all of those are answered.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from amcast.apps.kv import server_commands
from amcast.apps.kv.batching import Batcher, Calls, Dest, Together
from amcast.apps.kv.commands import SPECS, arity_fits, groups_of, merge
from amcast.apps.kv.resp import NIL_ARRAY, Reply
from amcast.apps.kv.slots import SlotMap
from amcast.apps.kv.strings import OK, Command, Result, wrong_arguments
from amcast.apps.kv.wire import Decide, Execute, Prepare, Versions
from amcast.errors import AmcastError, CommandRefused, MulticastFailed, OutcomeUnknown, SlotsMoved

if TYPE_CHECKING:
    from amcast.apps.kv.server_commands import Server

LOG_IN: Final = {b"AUTH", b"HELLO"}
T = TypeVar("T")
AT_ONCE: Final = {b"MULTI", b"EXEC", b"DISCARD", b"WATCH", b"QUIT", b"RESET"}  # also in a transaction


MSETNX_APART: Final = "-ERR MSETNX in a transaction needs all keys in one group; use a hash tag"


class Session:
    """What the server remembers of one connection."""

    def __init__(self, server: "Server", batcher: Batcher, number: int, peer: str = "") -> None:
        self.server = server
        self.number = number
        self.user: str | None = None  # who has logged in
        self._peer = peer
        self.name = b""
        self.resp3 = False
        self.closing = False
        self._batcher = batcher
        self._queued: list[Command] | None = None
        self._queued_bytes = 0
        self._broken = False  # a command of the transaction was refused
        self._watched: dict[bytes, int] = {}

    @property
    def stranger(self) -> bool:
        """Return whether nobody has logged in here, where that is needed."""
        return self.server.users is not None and self.user is None

    def now_ms(self) -> int | None:
        """Return the time in the cluster, if it is known."""
        return self._batcher.lookout.now_ms()

    async def take(self, commands: deque[Command], most: int) -> list[Reply]:
        """Execute the first commands, as many as go together, and drop them from the queue; return their replies."""
        replies: list[Reply] = []
        slots = self._batcher.slots
        together = Together(self._batcher.limits.gateway_batch_bytes, slots)
        while commands and len(replies) < most and not self.closing:
            command = commands[0].copy()
            command[0] = command[0].upper()
            forbidden = server_commands.forbidden(self, command)
            if forbidden is not None:
                self._broken = True  # the transaction, if there is one
                replies.append(forbidden)
                commands.popleft()
                continue
            spec = SPECS.get(command[0])
            if spec is not None and self._queued is None and arity_fits(spec.arity, command):
                dest = groups_of(command, slots)
                if not self._has_steps(command, dest):
                    if not together.add(len(replies), command, dest):
                        break
                    replies.append(None)
                    commands.popleft()
                    continue
            elif not self._takes_time(command):
                replies.append(self._at_once(commands.popleft(), command))
                continue
            if not replies:
                commands.popleft()
                return [await self._alone(command, self._batcher.deadline())]
            break
        if together.calls:
            await self._execute(together, replies, self._batcher.deadline())
        return replies

    async def _execute(self, together: Together, replies: list[Reply], until: float) -> None:
        """Put the replies in their places. What was routed by an old map is routed anew, in the same order."""
        left: Calls = []
        while True:
            moved: Calls = []
            for calls, values in await self._batcher.execute(together, until):
                if isinstance(values, SlotsMoved):
                    moved += calls
                else:
                    take_replies(calls, values, together.slots, replies)
            left = sorted(moved, key=lambda call: call[0]) + left
            together = Together(self._batcher.limits.gateway_batch_bytes, self._batcher.slots)
            while left:
                place, command = left[0]
                dest = groups_of(command, together.slots)
                if self._has_steps(command, dest):  # as it had not where its slots were
                    if together.calls:
                        break
                    replies[place] = await self._alone(command, until)
                elif not together.add(place, command, dest):
                    break
                del left[0]
            if not together.calls:
                return

    def _has_steps(self, command: Command, dest: Dest) -> bool:
        """Return whether this takes more than one multicast."""
        return command[0] == b"SCAN" or (len(dest) > 1 and (command[0] == b"MSETNX" or self.server.two_rounds))

    def _takes_time(self, command: Command) -> bool:
        if self._queued is None:
            if self.server.users is not None and server_commands.credentials(command) is not None:
                return True
            return command[0] == b"WATCH" and len(command) > 1
        return command == [b"EXEC"]

    async def _alone(self, command: Command, until: float) -> Reply:
        try:
            match command[0]:
                case b"AUTH" | b"HELLO":
                    return await self._log_in(command)
                case b"WATCH":
                    return await self._watch(command[1:], until)
                case b"EXEC":
                    return await self._exec(until)
                case b"MSETNX":
                    return await self._msetnx(command, until)
                case b"SCAN":
                    return await self._scan(command, until)
                case _:
                    return await self._single(command, until)
        except AmcastError as error:
            return server_commands.outcome(error)

    async def _routed(self, steps: Callable[[SlotMap], Awaitable[T]]) -> T:
        """Do this by the map of the slots, and again while that does not hold any more; a deadline ends it."""
        while True:
            with suppress(SlotsMoved):
                return await steps(self._batcher.slots)

    async def _single(self, command: Command, until: float) -> Result:
        results = await self._routed(partial(self._transaction, [command], {}, until))
        assert results is not None, "there was no condition"
        return results[0]

    async def _log_in(self, command: Command) -> Reply:
        found = server_commands.credentials(command)
        assert found is not None and self.server.users is not None, "only who states a password comes here"
        name, password = found
        refused = await self.server.users.log_in(name, password)
        if refused is not None:
            known = self.server.users.get(name) is not None  # else it may be a password in the wrong place
            self.server.log.warning("login refused", user=name if known else "unknown", peer=self._peer)
            return refused
        self.user = name
        return server_commands.COMMANDS[command[0]].run(self, command)

    async def _scan(self, command: Command, until: float) -> Reply:
        """Scan the next group, too, while there are too few keys, so that a small store is scanned in one call."""
        wanted = [n for name, n in zip(command[2::2], command[3::2], strict=False) if name.upper() == b"COUNT"]
        count = int(wanted[-1]) if wanted and wanted[-1].isdigit() else 10
        found: list[Result] = []
        cursor: Result = command[1]
        for _ in self._batcher.slots.groups:
            result = await self._single(command, until)
            if not isinstance(result, list) or not isinstance(result[1], list):
                return result
            cursor = result[0]
            found += result[1]
            if not isinstance(cursor, bytes) or cursor == b"0" or len(found) >= count:
                break
            command = [command[0], cursor, *command[2:]]
        return [cursor, found]

    # What needs no group

    def _at_once(self, typed: Command, command: Command) -> Reply:
        refusal = server_commands.refusal(typed)
        if refusal is not None:
            self._broken = True
            if typed[0].upper() == b"EXEC":  # whoever sends it thinks that the transaction ends here
                self._forget()
                return f"-EXECABORT Transaction discarded because of: {refusal.removeprefix('-ERR ')}"
            return refusal
        name = command[0]
        if self._queued is not None and name not in AT_ONCE:
            return self._queue(command)
        match name:
            case b"MULTI":
                if self._queued is not None:
                    return "-ERR MULTI calls can not be nested"
                self._queued, self._queued_bytes, self._broken = [], 0, False
                return OK
            case b"EXEC":
                return "-ERR EXEC without MULTI"
            case b"DISCARD":
                if self._queued is None:
                    return "-ERR DISCARD without MULTI"
                self._forget()
                return OK
            case b"WATCH":
                return "-ERR WATCH inside MULTI is not allowed"
            case b"RESET":
                self._forget()
                self.name, self.resp3, self.user = b"", False, None
                return "RESET"
        return self._local(command)

    def _local(self, command: Command) -> Reply:
        if command[0] == b"UNWATCH":
            self._watched = {}
            return OK
        return server_commands.COMMANDS[command[0]].run(self, command)

    def _queue(self, command: Command) -> Reply:
        assert self._queued is not None
        if command[0] in LOG_IN:
            self._broken = True
            return f"-ERR {command[0].decode()} inside MULTI is not allowed"
        if command[0] == b"MSETNX" and len(groups_of(command, self._batcher.slots)) > 1:
            self._broken = True
            return MSETNX_APART
        self._queued_bytes += sum(map(len, command)) + 8 * len(command)
        if self._queued_bytes > self.server.largest_request:
            self._broken = True
            return f"-ERR transaction larger than {self.server.largest_request} bytes"
        self._queued.append(command)
        return "QUEUED"

    def _forget(self) -> None:
        self._queued, self._watched, self._broken = None, {}, False

    # Transactions

    async def _watch(self, keys: list[bytes], until: float) -> Reply:
        async def look(slots: SlotMap) -> None:
            dest = tuple(sorted({slots.of_key(key) for key in keys}))
            values = await self._batcher.call(dest, Versions(keys), until, slots)
            for group, found in values.items():
                own = [key for key in keys if slots.of_key(key) == group]
                if len(found) != len(own):
                    raise OutcomeUnknown(f"g{group} told {len(found)} versions of {len(own)} keys")
                for key, version in zip(own, found, strict=True):
                    self._watched.setdefault(key, version)

        await self._routed(look)
        return OK

    async def _exec(self, until: float) -> Reply:
        queued, watched, broken = self._queued or [], self._watched, self._broken
        self._forget()
        if broken or any(server_commands.forbidden(self, command) for command in queued):  # users may have changed
            return "-EXECABORT Transaction discarded because of previous errors."
        commands = [command for command in queued if command[0] in SPECS]
        results: list[Result] | None = []
        if commands or watched:
            try:
                results = await self._routed(partial(self._transaction, commands, watched, until))
            except CommandRefused as refused:
                return str(refused)
        if results is None:
            return NIL_ARRAY
        following = iter(results)
        return [next(following) if command[0] in SPECS else self._local(command) for command in queued]

    async def _transaction(
        self, commands: list[Command], watched: dict[bytes, int], until: float, slots: SlotMap
    ) -> list[Result] | None:
        found = {group for command in commands for group in groups_of(command, slots)}
        dest = tuple(sorted(found | {slots.of_key(key) for key in watched}))
        if any(command[0] == b"MSETNX" and len(groups_of(command, slots)) > 1 for command in commands):
            raise CommandRefused(MSETNX_APART)  # they were in one when it was queued
        if len(dest) > 1 and (watched or self.server.two_rounds):
            conditional = self._conditionally(dest, commands, list(watched.items()), [], until, slots)
            parts = await self._batcher.to_the_end(conditional)
        else:
            parts = await self._batcher.call(dest, Execute(commands, list(watched.items())), until, slots)
        if parts is None or None in parts.values():
            return None
        return [
            merge(command, {group: part[at] for group, part in parts.items()}, slots)
            for at, command in enumerate(commands)
        ]

    async def _msetnx(self, command: Command, until: float) -> Reply:
        """Set keys of several groups if none of them exists."""
        if len(command) % 2 == 0:
            return wrong_arguments(command[0])

        async def steps(slots: SlotMap) -> dict[int, Any] | None:
            dest, commands = groups_of(command, slots), [[b"MSET", *command[1:]]]
            return await self._batcher.to_the_end(self._conditionally(dest, commands, [], command[1::2], until, slots))

        return 0 if await self._routed(steps) is None else 1

    async def _conditionally(
        self,
        dest: Dest,
        commands: list[Command],
        watched: list[tuple[bytes, int]],
        absent: list[bytes],
        until: float,
        slots: SlotMap,
    ) -> dict[int, Any] | None:
        """Execute if all groups find the conditions true: the parts; None if one finds them false.

        Nobody but us can decide to execute. So until we have asked for that, a failure means that it is not executed.
        """
        txn = self.server.machine.random.randbytes(12)
        try:
            votes = await self._batcher.call(dest, Prepare(txn, list(dest), commands, watched, absent), until, slots)
        except SlotsMoved:
            raise
        except AmcastError as error:
            self._batcher.send_on(dest, Decide(txn, commit=False))
            raise error if isinstance(error, MulticastFailed) else MulticastFailed(str(error)) from error
        commit = all(votes.values())
        decided: dict[int, Any] = {}
        try:
            decided = await self._batcher.call(dest, Decide(txn, commit), until)
        except AmcastError as error:
            if commit and not isinstance(error, MulticastFailed):
                raise
            self._batcher.send_on(dest, Decide(txn, commit=False))
            if commit:
                raise
        if False in votes.values():
            return None
        if not commit or any(committed is not True for committed, _ in decided.values()):
            raise MulticastFailed("another gateway took this one for dead, and its locks away")
        return {group: results for group, (_, results) in decided.items()}


def take_replies(
    calls: Calls, values: dict[int, list[Any]] | AmcastError, slots: SlotMap, replies: list[Reply]
) -> None:
    """Put what groups said to commands into the places of their replies."""
    if isinstance(values, AmcastError):
        for place, _ in calls:
            replies[place] = server_commands.outcome(values)
    elif len(values) == 1:
        (parts,) = values.values()
        for (place, _), part in zip(calls, parts, strict=True):
            replies[place] = part[0]
    else:
        for at, (place, command) in enumerate(calls):
            own = {group: parts[at][0] for group, parts in values.items()}
            replies[place] = merge(command, own, slots)
