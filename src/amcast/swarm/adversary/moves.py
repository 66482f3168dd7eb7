"""The moves of an adversary: a run is a list of them, and a line of text stands for each."""

from amcast.core.topology import Topology
from amcast.errors import UsageError

# ("deliver", sender, dest), ("multicast", pid, dest groups), ("timer", pid, name, delay), ("crash", pid, draw) …
Move = tuple[object, ...]

# What follows the word: p a process, g groups, s a word, i an integer, m processes.
SHAPES = {
    "deliver": "pp",
    "multicast": "pg",
    "timer": "psi",
    "disconnect": "p",
    "withdraw": "pi",
    "suspect": "p",
    "refuse": "pp",
    "detect": "pp",
    "trust": "pp",
    "pause": "p",
    "resume": "p",
    "crash": "pi",
    "falter": "pi",
    "sync": "p",
    "snapshot": "p",
    "copy": "p",
    "lose-disk": "pi",
    "roll-back": "p",
    "restart": "pi",
    "rejoin": "pi",
    "pull": "pi",
    "reconfigure": "psi",
    "members": "pm",
    "change": "pgim",
    "found": "pgi",
    "stop": "p",
    "join": "p",
    "leave": "p",
}
# What does harm; the rest is what happens in any run, if at a bad moment.
FAULTS = ("suspect", "refuse", "detect", "pause", "crash", "falter", "lose-disk", "roll-back")


def spell(topology: Topology, move: Move) -> str:
    """Write a move as a line: `deliver g0/1 g1/0`."""
    words = [str(move[0])]
    for shape, part in zip(SHAPES[words[0]], move[1:], strict=True):
        if shape == "p":
            words.append(topology.names[int(str(part))])
        elif shape == "g" or shape == "m":
            assert isinstance(part, tuple)
            words.append(",".join([topology.group_name(x) if shape == "g" else topology.names[x] for x in part]))
        else:
            words.append(str(part))
    return " ".join(words)


def parse(topology: Topology, line: str) -> Move:
    """Read a move as `spell` writes it."""
    words = line.partition("#")[0].split()
    shape = SHAPES.get(words[0] if words else "")
    if shape is None or len(words) != len(shape) + 1:
        known = ", ".join(SHAPES)
        raise UsageError(f"move {line!r}: expected a line such as 'deliver g0/0 g0/1'; the moves are {known}")
    return (words[0], *[parse_part(topology, line, *part) for part in zip(shape, words[1:], strict=True)])


def parse_part(topology: Topology, line: str, shape: str, word: str) -> object:
    if shape == "p":
        return topology.pid(word)
    if shape == "m":
        return tuple([topology.pid(name) for name in word.split(",")])
    if shape == "s":
        return word
    try:
        if shape == "i":
            return int(word)
        groups = tuple([int(name.removeprefix("g")) for name in word.split(",")])
    except ValueError:
        raise UsageError(f"move {line!r}: {word!r} is no number; expected a line as a failing seed left it") from None
    if not all(0 <= g < len(topology.groups) for g in groups):
        raise UsageError(f"move {line!r}: there are {len(topology.groups)} groups in this run; expected one of them")
    return groups
