"""Executes what a group delivers, whatever its application does: a message has one outcome, the same at all replicas.

An exception of `apply` is an outcome like an answer. The message keeps its position, its sender is told that it was
rejected, and the state is as if it had not been there. Since the same message raises at every replica and at every
restart, anything else would let one payload stop a group for good.

What does not come from the message but from this machine (no memory, a file that is missing) must not be an outcome,
for the others may not have it. The replica stops instead, and says where.

How the state gets to be as it was: an application that raises only before it changes anything says so (`AllOrNothing`),
and nothing need be done. For any other one the last known state is kept, and what was executed since: an exception
brings that state back and executes those messages again, without the one that raised. The result is the next known
state, so that no message is executed again twice. docs/decisions/0026-rejections.md compares this with other ways.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from amcast.core.application import AllOrNothing, Delivery, InPieces, Queried, StateMachine, state_in_pieces, version_of
from amcast.errors import AmcastError, ApplicationFailed, PeerError, Rejected, UsageError

# An answer travels and is kept as it is, unless it begins with this byte, which msgpack never uses.
MARK: Final = b"\xc1"
ANSWER: Final = MARK + b"\x00"  # … then this stands before it
REJECTION: Final = MARK + b"\x01"  # then the kind of the exception, a line feed, and its text
LONGEST_TEXT: Final = 500  # characters
ADDRESS: Final = re.compile(r"\b0x[0-9a-fA-F]{6,}")  # of an object: different in every process

KEPT_AT_LEAST: Final = 4 * 2**20  # bytes that may be executed again after an exception …
KEPT_AT_MOST: Final = 64 * 2**20  # … more if the state is larger, up to this
COST_OF_ONE: Final = 500  # bytes, about, of a delivery that is kept, without its payload

# These say something about this machine, or about this life of the process, not about the message.
OURS_ALONE: Final = (MemoryError, OSError, ImportError, SystemError)


def outcome_of(answer: bytes) -> bytes:
    """Return an application's answer as it is kept and sent."""
    return ANSWER + answer if answer.startswith(MARK) else answer


def rejection(error: Exception) -> bytes:
    """Return what is kept and sent instead of an answer: the kind of the exception and its text, and no more."""
    kind = "" if isinstance(error, Rejected) else type(error).__name__
    try:
        text = ADDRESS.sub("0x…", " ".join(str(error).split()))
    except Exception:  # an exception that cannot even be shown
        text = ""
    said = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
    return REJECTION + f"{kind}\n{said}".encode(errors="replace")


def answer_or_reason(outcome: bytes) -> bytes | str:
    """Return the answer, or why the message was rejected."""
    if outcome.startswith(REJECTION):
        kind, _, text = outcome[len(REJECTION) :].decode(errors="replace").partition("\n")
        return f"{kind}: {text}" if kind and text else kind or text or "rejected"
    return outcome[len(ANSWER) :] if outcome.startswith(ANSWER) else outcome


def certain(outcome: bytes) -> bytes:
    """Return what must be the same at all replicas. The text of an exception need not: it may show a set, or an id."""
    return outcome.partition(b"\n")[0] if outcome.startswith(REJECTION) else outcome


class Executor:
    """The application of a replica, as its node sees it. Answers are outcomes, and only ApplicationFailed is raised."""

    def __init__(self, app: StateMachine, name: str) -> None:
        self.app = app
        self.name = name
        self.newest = self.version = version_of(app)  # that the code knows, and that is in force
        self._undoes = not isinstance(app, AllOrNothing)
        self._known = b""  # a state …
        self._since: list[tuple[Delivery, bool]] = []  # … what was executed since, and whether it needed a deep stack
        self._size = 0
        if self._undoes:
            self.snapshot()

    def apply(self, delivery: Delivery) -> bytes:
        """Execute one message; return its outcome."""
        deep = False
        found = self._try(delivery)
        if isinstance(found, RecursionError):
            # How deep a stack may get depends on who called us, which differs between replicas, and between recovery
            # and later. A new thread has the same, and more room than any caller leaves: so it decides.
            self._undo()
            deep = True
            found = self._try_with_a_stack_of_its_own(delivery)
        if isinstance(found, Exception):
            self._undo()
            return rejection(found)
        if self._undoes:
            self._since.append((delivery, deep))
            self._size += len(delivery.payload) + COST_OF_ONE
            if self._size > min(max(KEPT_AT_LEAST, len(self._known)), KEPT_AT_MOST):
                self.snapshot()
        return outcome_of(found)

    def query(self, request: bytes) -> bytes:
        """Return the outcome of a question, which has no place in the order. Whatever it raises stops nothing."""
        assert isinstance(self.app, Queried)
        try:
            answer: object = self.app.query(request)
            if not isinstance(answer, bytes):
                raise TypeError(f"query returned {type(answer).__name__}, expected bytes")
        except Exception as error:
            return rejection(error)
        return outcome_of(answer)

    def begin(self, version: int) -> None:
        """Behave as this version: that of the state which is restored next, or of what is executed first."""
        if version > self.newest:
            raise UsageError(
                f"application {self.name}: its state is of version {version}, but the code here knows versions up to "
                f"{self.newest}; install the newer one"
            )
        if version != self.version:
            self._behave_as(version)
            if self._undoes:
                self.snapshot()

    def rehearse(self, version: int, other: StateMachine) -> None:
        """See whether this state can become one of a newer version, in another machine. Raises ApplicationFailed."""
        Executor(other, self.name)._adopt(version, self.version, self.snapshot(), "in a rehearsal")

    def switch(self, version: int, position: int) -> None:
        """Change to a newer version, at this position: what was executed before is of the old one."""
        if version > self.newest:
            raise ApplicationFailed(
                f"application {self.name}: version {version} takes over at position {position}, but the code here "
                f"knows versions up to {self.newest}; install the newer one and start this replica again"
            )
        if version > self.version:
            self._adopt(version, self.version, self.snapshot(), f"at position {position}")

    def _adopt(self, version: int, old: int, state: bytes, where: str) -> None:
        """Go on as this version, with a state of an older one."""
        self._behave_as(version)
        migrate = getattr(self.app, "migrate", None)
        try:
            found: object = migrate(old, state) if migrate is not None else state
            if not isinstance(found, bytes):
                raise TypeError(f"migrate returned {type(found).__name__}, expected bytes")
        except Exception as error:
            raise self._failed(f"{where}, while it migrated to version {version}", error) from error
        self.restore(found)

    def _behave_as(self, version: int) -> None:
        self.version = version
        try:
            self.app.version = version  # type: ignore[attr-defined]
        except AttributeError as error:
            raise self._failed(f"when it was told to be of version {version}", error) from error

    def snapshot(self) -> bytes:
        """Return the whole state."""
        try:
            state: object = self.app.snapshot()
        except AmcastError:
            raise
        except Exception as error:
            raise self._failed("while it took a snapshot", error) from error
        if not isinstance(state, bytes):
            wrong = TypeError(f"snapshot returned {type(state).__name__}, expected bytes")
            raise self._failed("while it took a snapshot", wrong)
        if self._undoes:
            self._know(state)
        return state

    def snapshot_parts(self) -> Iterator[bytes]:
        """Yield the state of this moment, in the pieces that the application wants to make of it."""
        if not isinstance(self.app, InPieces):
            yield self.snapshot()
            return
        try:
            yield from state_in_pieces(self.app)
        except AmcastError:
            raise
        except Exception as error:
            raise self._failed("while it took a snapshot", error) from error

    def restore(self, state: bytes) -> None:
        """Go on from a snapshot."""
        try:
            self.app.restore(state)
        except AmcastError:
            raise
        except Exception as error:
            raise self._failed(f"while it restored a snapshot of {len(state)} bytes", error) from error
        if self._undoes:
            self._know(state)

    def _know(self, state: bytes) -> None:
        self._known = state
        self._since = []
        self._size = 0

    def _try(self, delivery: Delivery) -> bytes | Exception:
        """Return the answer, or the exception that is the message's own."""
        try:
            answer: object = self.app.apply(delivery)
        except (Rejected, PeerError) as error:
            return error
        except AmcastError:  # something that watches over this run found what must not be
            raise
        except Exception as error:
            if isinstance(error, OURS_ALONE):
                raise self._failed(f"at position {delivery.position} ({delivery.message})", error) from error
            return error
        except BaseException as error:  # SystemExit, and whatever else is no answer to a message
            raise self._failed(f"at position {delivery.position} ({delivery.message})", error) from error
        if not isinstance(answer, bytes):
            return TypeError(f"apply returned {type(answer).__name__}, expected bytes")
        return answer

    def _try_with_a_stack_of_its_own(self, delivery: Delivery) -> bytes | Exception:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._try, delivery).result()

    def _undo(self) -> None:
        """Bring back the state before the message that raised."""
        if not self._undoes:
            return
        since = self._since
        self.restore(self._known)
        for delivery, deep in since:
            found = self._try_with_a_stack_of_its_own(delivery) if deep else self._try(delivery)
            if isinstance(found, Exception):
                where = f"at position {delivery.position}, which it had executed before: it is not deterministic"
                raise self._failed(where, found) from found
        self.snapshot()

    def _failed(self, where: str, error: BaseException) -> ApplicationFailed:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_TEXT]
        return ApplicationFailed(f"application {self.name} failed {where}: {text}")
