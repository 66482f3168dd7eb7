"""Which version of an application a cluster runs: all replicas change to a newer one at the same place of the order.

Replicas are given new code one by one, and while some have the old one, all must behave as it does. So the code of a
replica says when it greets which version it knows, and goes on as the one in force. When every member of every group is
connected and knows a newer one, each leader has its group order a message of this cluster's own, to all groups: the
change. Its id is made of the version, so that however many leaders send it, it is delivered once. It takes a position
in each log, and no application sees it. A replica that meets it without knowing the version stops.

Only protocols whose replicas can come back have this: with the others, all begin together with the same code.
"""

from typing import Final, Protocol

from amcast.core.capabilities import Electing
from amcast.core.process import Process
from amcast.core.requests import Multicast
from amcast.core.topology import Mid, message_id, sender_of, seq_of
from amcast.core.wire import AppMessage
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.execution import Executor
from amcast.runtime.frames import AppVersions, Hello
from amcast.runtime.serving import SESSION_BITS

SENDER: Final = (1 << SESSION_BITS) - 1  # below the sessions of all clients


def change_in(mid: Mid) -> int:
    """Return the version that this message changes to; 0 if it is a message for the application."""
    return seq_of(mid) if sender_of(mid) == SENDER else 0


class VersionsHost(Protocol):
    """The node, as this module sees it."""

    config: ClusterConfig
    me: Member

    @property
    def executor(self) -> Executor | None: ...


class Versions:
    """The versions that the members know, as they said when they greeted."""

    def __init__(self, host: VersionsHost) -> None:
        self.began = 0  # with which this replica began; 0: with a state of the others
        self._host = host
        self._known: dict[int, int] = {}

    def ours(self) -> AppVersions:
        """Return what to say in a greeting."""
        executor = self._host.executor
        return AppVersions(executor.newest, executor.version, self.began) if executor is not None else AppVersions()

    def greeted(self, pid: int, hello: Hello) -> str | None:
        """Take note of what a member knows; return why it cannot take part, None if it can."""
        theirs, ours = hello.versions, self.ours()
        app = self._host.config.app
        if theirs.newest < ours.active:
            return (
                f"{hello.name} has version {theirs.newest} of application {app}, {self._host.me.name} is at version "
                f"{ours.active}; install it"
            )
        if theirs.began and ours.began and theirs.began != ours.began:
            return (
                f"{hello.name} began with version {theirs.began} of application {app}, {self._host.me.name} with "
                f"{ours.began}; begin with the same"
            )
        self._known[pid] = theirs.newest
        return None

    def left(self, pid: int) -> None:
        self._known.pop(pid, None)

    def due(self) -> int:
        """Return the newest version that all know, if it is newer than that in force; else 0."""
        executor = self._host.executor
        if executor is None or executor.newest == executor.version:
            return 0
        if len(self._known) + 1 < len(self._host.config.members):
            return 0
        version = min([executor.newest, *self._known.values()])
        return version if version > executor.version else 0


def change_to(version: int, groups: int) -> Multicast:
    """Return what a leader asks its own process for."""
    return Multicast(AppMessage(message_id(SENDER, version), tuple(range(groups)), b""))


def leads(process: Process) -> bool:
    return isinstance(process, Electing) and process.leads()
