"""Which version of an application a cluster runs: all replicas change to a newer one at the same place of the order.

Replicas are given new code one by one, and while some have the old one, all must behave as it does. So the code of a
replica says when it greets which version it knows, and goes on as the one in force. When every member of every group is
connected and knows a newer one, each leader has its group order a message of this cluster's own, to all groups: the
change. Its id is made of the version, so that however many leaders send it, it is delivered once. It takes a position
in each log, and no application sees it. A replica that meets it without knowing the version stops.

Only protocols whose replicas can come back have this: with the others, all begin together with the same code.
"""

from typing import Final, Protocol

from amcast.core.application import Factory, StateMachine, made
from amcast.core.capabilities import Electing
from amcast.core.requests import Multicast
from amcast.core.topology import Mid, message_id, sender_of, seq_of
from amcast.core.wire import AppMessage
from amcast.errors import AmcastError
from amcast.runtime.config import ClusterConfig, Member
from amcast.runtime.engine import Engine
from amcast.runtime.execution import Executor
from amcast.runtime.frames import AppVersions, Hello
from amcast.runtime.identity import Described
from amcast.runtime.log import Log
from amcast.runtime.serving import SESSION_BITS

PROPOSE_AGAIN: Final = 10 * 10**9  # nanoseconds: a proposal may be lost with its leader
LATEST: Final = (1 << 32) - 1  # version, or format
SENDER: Final = (1 << SESSION_BITS) - 1  # below the sessions of all clients


def change_in(mid: Mid) -> int:
    """Return the version that this message changes to; 0 if it is a message for the application."""
    return seq_of(mid) & LATEST if sender_of(mid) == SENDER else 0


def number_to_all(config: ClusterConfig, number: int) -> int:
    """Return the number of a message about this one to all groups: another one if there are more of them by now."""
    return (len(config.groups) - len(config.topology.sizes)) * (LATEST + 1) + number


class VersionsHost(Protocol):
    """The node, as this module sees it."""

    config: ClusterConfig
    me: Member
    log: Log
    engine: Engine


class Versions:
    """The application of a replica, what the members know of it, and the change, when it is time for it."""

    def __init__(self, host: VersionsHost, factory: Factory | None) -> None:
        self.began = 0  # with which this replica began; 0: with a state of the others
        self._host = host
        self._factory = factory
        self.executor = Executor(self._made(factory), host.config.app) if factory is not None else None
        self._known: dict[int, int] = {}
        self._wait_until = 0  # a change was proposed, or cannot be made

    def _made(self, factory: Factory) -> StateMachine:
        config = self._host.config
        return made(factory, config.app, self._host.me.group, len(config.topology.sizes))

    def another(self) -> Executor | None:
        """Return a new application, which has executed nothing; None if there is none."""
        return Executor(self._made(self._factory), self._host.config.app) if self._factory is not None else None

    def begin(self, described: Described | None, *, new: bool, rejoins: bool) -> None:
        """Go on as the version that this replica began with; what it restores may be of a later one."""
        executor = self.executor
        if described is not None:
            self.began = described.app_version
        elif executor is not None and not rejoins:  # 0.1.0 knew no versions: all that it wrote is of the first
            self.began = executor.newest if new else 1
        if executor is not None and self.began:
            executor.begin(self.began)

    def ours(self) -> AppVersions:
        """Return what to say in a greeting."""
        executor = self.executor
        return AppVersions(executor.newest, executor.version, self.began) if executor is not None else AppVersions()

    def greeted(self, pid: int, hello: Hello) -> str | None:
        """Take note of what a member knows; return why it cannot take part, None if it can."""
        theirs, ours, me = hello.versions, self.ours(), self._host.me.name
        app = self._host.config.app
        if theirs.newest < ours.active:
            has = f"{hello.name} has version {theirs.newest} of application {app}"
            return f"{has}, {me} is at version {ours.active}; install it"
        if theirs.began and ours.began and theirs.began != ours.began:
            began = f"{hello.name} began with version {theirs.began} of application {app}, {me} with {ours.began}"
            return f"{began}; begin with the same"
        self._known[pid] = theirs.newest
        return None

    def left(self, pid: int) -> None:
        self._known.pop(pid, None)

    def due(self) -> int:
        """Return the newest version that all know, if it is newer than that in force; else 0."""
        executor = self.executor
        if executor is None or executor.newest == executor.version:
            return 0
        others = [member.pid for member in self._host.config.members if member.pid != self._host.me.pid]
        if any(pid not in self._known for pid in others):
            return 0
        version = min([executor.newest, *self._known.values()])
        return version if version > executor.version else 0

    def proposal(self, now: int) -> Multicast | None:
        """Return what the leader of a group has its process order, when it is time for a change."""
        version, process = self.due(), self._host.engine.process
        if not version or now < self._wait_until or not (isinstance(process, Electing) and process.leads()):
            return None
        self._wait_until = now + PROPOSE_AGAIN
        assert self.executor is not None and self._factory is not None
        try:
            self.executor.rehearse(version, self._made(self._factory))
        except AmcastError as error:
            self._host.log.error("application stays as it is", version=version, error=str(error))
            return None
        config = self._host.config
        return Multicast(AppMessage(message_id(SENDER, number_to_all(config, version)), config.groups, b""))

    def change(self, version: int, position: int) -> None:
        """Let a newer version take over: this is the place of the change in the order."""
        assert self.executor is not None
        before = self.executor.version
        if version <= before:  # a group that came later had yet to change
            return
        self.executor.switch(version, position)
        app = self._host.config.app
        self._host.log.info("application changed", app=app, version=version, before=before, position=position)
