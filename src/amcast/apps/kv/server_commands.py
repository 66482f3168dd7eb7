"""Commands that a gateway answers by itself: about the connection, about the server."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from amcast import __version__
from amcast.apps.kv.commands import ADMIN, READ, SPECS, Keys, arity_fits, keys_of, rights_for
from amcast.apps.kv.glob import matcher
from amcast.apps.kv.lookout import NOBODY_TOLD
from amcast.apps.kv.resp import LARGEST_REQUEST, Reply
from amcast.apps.kv.strings import NOT_AN_INTEGER, OK, SYNTAX, Command, integer, wrong_arguments
from amcast.apps.kv.users import DEFAULT, NOT_LOGGED_IN, Users
from amcast.errors import AmcastError, Busy, CommandRefused, MulticastFailed
from amcast.runtime.log import Log
from amcast.runtime.machine import Machine

if TYPE_CHECKING:
    from amcast.apps.kv.session import Session

LIKE_REDIS: Final = "7.0.15"  # whose answers are the model
NO_PASSWORD: Final = (
    "-ERR AUTH <password> called without any password configured for the default user. "
    "Are you sure your configuration is correct?"
)


@dataclass
class Server:
    """What the connections of a gateway have in common."""

    groups: int
    machine: Machine
    port: int = 0
    largest_request: int = LARGEST_REQUEST
    two_rounds: bool = False  # for whatever has several groups: machine.py, "Real time"
    users: Users | None = None  # None: everybody may do everything
    log: Log = field(kw_only=True)
    started: int = field(init=False)
    connections: int = 0
    accepted: int = 0
    commands: int = 0

    def __post_init__(self) -> None:
        self.started = self.machine.clock.monotonic_ns()


def outcome(error: AmcastError) -> str:
    """Return what is said of a multicast that failed."""
    if isinstance(error, Busy):
        return f"-BUSY not executed: {error}"
    what = "not executed" if isinstance(error, MulticastFailed) else "outcome unknown"
    return f"-TRYAGAIN {what}: {error}"


def text(word: bytes) -> str:
    return word.decode(errors="surrogateescape")


def unknown(typed: Command) -> str:
    shown = ""
    for word in typed[1:]:
        if len(shown) >= 128:
            break
        shown += f"'{text(word[: 128 - len(shown)])}' "
    return f"-ERR unknown command '{text(typed[0][:128])}', with args beginning with: {shown}"


def ping(session: "Session", command: Command) -> Reply:
    if len(command) > 2:
        return wrong_arguments(command[0])
    return command[1] if len(command) == 2 else "PONG"


def echo(session: "Session", command: Command) -> Reply:
    return command[1]


NOT_LOGGED_IN_YET: Final = (
    "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> "
    "<pass> option can be used to authenticate the client and select the RESP protocol version at the same time"
)


def credentials(command: Command) -> tuple[str, str] | None:
    """Return the name and the password that AUTH, or HELLO with AUTH, states; None if there is none."""
    if command[0] == b"AUTH" and len(command) in (2, 3):
        return DEFAULT if len(command) == 2 else text(command[1]), text(command[-1])
    at = 2
    while command[0] == b"HELLO" and at + 1 < len(command):
        if command[at].upper() == b"AUTH" and at + 2 < len(command):
            return text(command[at + 1]), text(command[at + 2])
        at += 2
    return None


def hello(session: "Session", command: Command) -> Reply:
    version = 3 if session.resp3 else 2
    if len(command) > 1:
        try:
            version = integer(command[1])
        except CommandRefused:
            return "-ERR Protocol version is not an integer or out of range"
        if version not in (2, 3):
            return "-NOPROTO unsupported protocol version"
    name, at = session.name, 2
    while at < len(command):
        option = command[at].upper()
        if option == b"AUTH" and at + 2 < len(command):
            if session.server.users is None:
                return NO_PASSWORD
            at += 3  # the session has looked at them
            continue
        if option != b"SETNAME" or at + 1 >= len(command):
            return f"-ERR Syntax error in HELLO option '{text(command[at])}'"
        name = command[at + 1]
        at += 2
    if not name_allowed(name):
        return BAD_NAME
    if session.stranger:
        return NOT_LOGGED_IN_YET
    session.name, session.resp3 = name, version == 3
    return {
        b"server": b"redis", b"version": LIKE_REDIS.encode(), b"proto": version, b"id": session.number,
        b"mode": b"standalone", b"role": b"master", b"modules": [],
    }  # fmt: skip


BAD_NAME: Final = "-ERR Client names cannot contain spaces, newlines or special characters."


def name_allowed(name: bytes) -> bool:
    return all(0x21 <= byte <= 0x7E for byte in name)


def auth(session: "Session", command: Command) -> Reply:
    """Answer AUTH where there are no users, or where it cannot be; the session does what is left."""
    if len(command) > 3:
        return SYNTAX
    return NO_PASSWORD if session.server.users is None else OK


def acl(session: "Session", command: Command) -> Reply:
    return (session.user or DEFAULT).encode()


def client(session: "Session", command: Command) -> Reply:
    about = b"id=%d name=%b db=0 resp=%d" % (session.number, session.name, 3 if session.resp3 else 2)
    match command[1].upper():
        case b"SETNAME":
            if not name_allowed(command[2]):
                return BAD_NAME
            session.name = command[2]
            return OK
        case b"GETNAME":
            return session.name or None
        case b"ID":
            return session.number
        case b"INFO" | b"LIST":
            return about + b"\n"
        case _:  # SETINFO, NO-EVICT, NO-TOUCH
            return OK


def select(session: "Session", command: Command) -> Reply:
    try:
        number = integer(command[1])
    except CommandRefused:
        return NOT_AN_INTEGER
    if not -(2**31) <= number < 2**31:
        return "-ERR value is out of range, value must between -2147483648 and 2147483647"
    return OK if number == 0 else "-ERR DB index is out of range"


def info(session: "Session", command: Command) -> Reply:
    server = session.server
    uptime = (server.machine.clock.monotonic_ns() - server.started) // 10**9
    sections: dict[str, dict[str, object]] = {
        "Server": {
            "redis_version": LIKE_REDIS, "redis_mode": "standalone", "amcast_version": __version__,
            "arch_bits": 64, "tcp_port": server.port, "uptime_in_seconds": uptime,
        },
        "Clients": {"connected_clients": server.connections},
        "Stats": {
            "total_connections_received": server.accepted, "total_commands_processed": server.commands,
        },
        "Replication": {"role": "master", "groups": server.groups},
        "Cluster": {"cluster_enabled": 0},
    }  # fmt: skip
    wanted = {text(word).lower() for word in command[1:]} - {"all", "default", "everything"}
    return "\r\n".join(
        f"# {title}\r\n" + "".join(f"{name}:{value}\r\n" for name, value in lines.items())
        for title, lines in sections.items()
        if not wanted or title.lower() in wanted
    ).encode()


PLACES: Final = {Keys.ONE: (1, 1, 1), Keys.EACH: (1, -1, 1), Keys.PAIRS: (1, -1, 2)}


def describe(name: bytes) -> Reply:
    if name in SPECS:
        spec = SPECS[name]
        flags: list[Reply] = ["write" if spec.writes else "readonly"]
        places = PLACES.get(spec.keys, (0, 0, 0))
        return [name.lower(), spec.arity, flags, *places, [], [], [], []]
    if name in COMMANDS:
        return [name.lower(), COMMANDS[name].arity, ["fast"], 0, 0, 0, [], [], [], []]
    return None


def command_(session: "Session", command: Command) -> Reply:
    names = [*SPECS, *COMMANDS]
    if len(command) == 1:
        return [describe(name) for name in names]
    match command[1].upper():
        case b"COUNT":
            return len(names)
        case b"DOCS":
            return {}
        case b"INFO":
            return [describe(name.upper()) for name in command[2:]] if len(command) > 2 else list(map(describe, names))
        case _:
            return [name.lower() for name in names]


CONFIG: Final = {b"save": b"", b"appendonly": b"yes", b"maxmemory": b"0", b"databases": b"1"}


def config(session: "Session", command: Command) -> Reply:
    wanted = [matcher(pattern.lower()) for pattern in command[2:]]
    return {name: value for name, value in CONFIG.items() if any(matches(name) for matches in wanted)}


def time_(session: "Session", command: Command) -> Reply:
    now = session.now_ms()
    if now is None:
        return f"-TRYAGAIN not executed: {NOBODY_TOLD}"
    return [b"%d" % (now // 1000), b"%d" % (now % 1000 * 1000)]


def quit_(session: "Session", command: Command) -> Reply:
    session.closing = True
    return OK


def of_the_session(session: "Session", command: Command) -> Reply:
    """Stand for MULTI, WATCH and so on, which the session looks at before it looks here."""
    raise AssertionError(f"{command[0]!r} is not answered here")


@dataclass(frozen=True)
class Local:
    arity: int
    run: Callable[["Session", Command], Reply]
    needs: frozenset[str] = frozenset((ADMIN,))  # to be allowed; what says nothing is for few


ANYBODY: Final[frozenset[str]] = frozenset()  # who has logged in
COMMANDS: Final[dict[bytes, Local]] = {
    b"PING": Local(-1, ping, ANYBODY), b"ECHO": Local(2, echo, ANYBODY), b"HELLO": Local(-1, hello, ANYBODY),
    b"AUTH": Local(-2, auth, ANYBODY), b"ACL": Local(-2, acl, ANYBODY), b"CLIENT": Local(-2, client, ANYBODY),
    b"SELECT": Local(2, select, ANYBODY), b"COMMAND": Local(-1, command_, ANYBODY), b"TIME": Local(1, time_, ANYBODY),
    b"QUIT": Local(-1, quit_, ANYBODY), b"INFO": Local(-1, info), b"CONFIG": Local(-2, config),
    b"MULTI": Local(1, of_the_session, ANYBODY), b"EXEC": Local(1, of_the_session, ANYBODY),
    b"DISCARD": Local(1, of_the_session, ANYBODY), b"UNWATCH": Local(1, of_the_session, ANYBODY),
    b"WATCH": Local(-2, of_the_session, frozenset((READ,))), b"RESET": Local(1, of_the_session, ANYBODY),
}  # fmt: skip
FOR_STRANGERS: Final = {b"AUTH", b"HELLO", b"QUIT", b"RESET"}


def forbidden(session: "Session", command: Command) -> str | None:
    """Return why this user may not do this; None if it may. Nobody else decides that, and every command passes here."""
    users, name = session.server.users, command[0]
    if users is None:
        return None
    user = users.get(session.user) if session.user is not None else None
    if user is None:
        return None if name in FOR_STRANGERS else NOT_LOGGED_IN
    if name in SPECS:
        return user.refusal(name, rights_for(command), keys_of(command))
    local = COMMANDS.get(name)
    if local is None:
        return None  # there is no such command, and that is the answer
    return user.refusal(name, local.needs, command[1:] if name == b"WATCH" else [])


SUBCOMMANDS: Final[dict[bytes, dict[bytes, int]]] = {  # with their arity
    b"CLIENT": {
        b"SETNAME": 3, b"GETNAME": 2, b"ID": 2, b"INFO": 2, b"LIST": -2, b"SETINFO": 4, b"NO-EVICT": 3, b"NO-TOUCH": 3,
    },
    b"ACL": {b"WHOAMI": 2},
    b"COMMAND": {b"COUNT": 2, b"DOCS": -2, b"INFO": -2, b"LIST": -2},
    b"CONFIG": {b"GET": -3},
}  # fmt: skip


def refusal(typed: Command) -> str | None:
    """Return why a command cannot even be queued in a transaction; None if it can."""
    name = typed[0].upper()
    spec = SPECS.get(name) or COMMANDS.get(name)
    if spec is None:
        return unknown(typed)
    if not arity_fits(spec.arity, typed):
        return wrong_arguments(name)
    if name in SUBCOMMANDS and len(typed) > 1:
        arity = SUBCOMMANDS[name].get(typed[1].upper())
        if arity is None:
            return f"-ERR unknown subcommand '{text(typed[1][:128])}'. Try {text(name)} HELP."
        if not arity_fits(arity, typed):
            return wrong_arguments(b"%b|%b" % (name, typed[1]))
    return None
