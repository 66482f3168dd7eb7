"""What a cluster is: the same in every process, in every data folder and in every greeting, or it is refused.

A data folder says it behind its first line, which is all that version 0.1.0 wrote:

    amcast-7f3a91 g0/1
    {"format": 3, "cluster": {"protocol": "white_box", "groups": "2 groups of 3 replicas", …}, …}
    checksum 1f0a97c3

The last line is there in every format: without it a damaged description would look like that of another cluster.

Whoever starts on a folder or greets another process compares before it reads, writes or executes anything. So a cluster
that was given another file goes on as if nothing had been, once it has its old file again. Addresses, certificates,
timing and permissions are no part of it: they may change.
"""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from amcast.core.plural import count
from amcast.errors import StorageCorrupt, UsageError

FORMAT: Final = 3  # of all that a folder holds and that members write to each other; folders of 0.1.0 have none
OLDEST: Final = 3  # that is read and, until all members know the newer one, written (`formats.py`)
LONGEST: Final = 200  # characters of what is said of groups: with many different ones the digest says the rest


class ClusterIdentity(msgspec.Struct, frozen=True):
    """What may not differ. The names of the fields are those in the data folder."""

    protocol: str
    groups: str  # for people
    topology: str  # a digest of the groups, and of how many of their last replicas are spare
    durable: bool
    app: str

    def unlike(self, other: "ClusterIdentity") -> list[tuple[str, str]]:
        """Return what differs, as it is here and as it is there."""
        found: list[tuple[str, str]] = []
        if self.protocol != other.protocol:
            found.append((f"protocol {self.protocol}", f"protocol {other.protocol}"))
        if self.topology != other.topology:
            found.append((self.groups, other.groups))
        if self.durable != other.durable:
            found.append((f"durable = {str(self.durable).lower()}", f"durable = {str(other.durable).lower()}"))
        if self.app != other.app:
            found.append((f"application {self.app}", f"application {other.app}"))
        return found


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """What a data folder says of itself."""

    format: int = OLDEST  # that is in use: a cluster begins with what the release before knows, too
    cluster: ClusterIdentity
    app_version: int  # of the application when this replica began; 0: it began with a state of the others

    def encoded(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


class _Written(msgspec.Struct):
    """A description of any format."""

    format: int


def identity_of_cluster(protocol: str, sizes: Sequence[int], spare: int, durable: bool, app: str) -> ClusterIdentity:
    """Return the identity of a cluster with groups of these sizes, so many of the last replicas of each spare."""
    said = f"{count(len(sizes), 'group')} of {count(sizes[0], 'replica')}"
    if len(set(sizes)) > 1:
        said = f"groups of {', '.join(map(str, sizes))} replicas"
    if spare:
        said += f", {spare} of each spare"
    digest = sha256(msgspec.json.encode([list(sizes), spare])).hexdigest()[:16]
    return ClusterIdentity(protocol, said[:LONGEST], digest, durable, app)


def sealed(who: str, description: bytes) -> bytes:
    """Return what the identity of a folder holds."""
    text = who.encode() + b"\n" + description
    return text + b"checksum %08x\n" % crc32(text)


def is_of_0_1_0(data: bytes) -> bool:
    """Return whether version 0.1.0 wrote this identity: a name, and no line feed behind it."""
    return bool(data) and b"\n" not in data


def description_in(folder: Path, who: str, data: bytes) -> bytes:
    """Return what follows the first line of a folder's identity, but for the checksum.

    Raises StorageCorrupt if it is damaged, UsageError if it names another.
    """
    found, lines, rest = data.partition(b"\n")
    description = rest[: rest.rstrip(b"\n").rfind(b"\n") + 1]
    if lines and data != sealed(found.decode(errors="replace"), description):
        raise StorageCorrupt(f"{folder / 'identity'}: damaged; start this node with --rejoin")
    if found != who.encode():
        said = found[:200].decode(errors="replace")
        raise UsageError(f"{folder}: data of {said}, expected {who}; check the data folder")
    return description


def described(
    folder: Path, text: bytes, expected: ClusterIdentity, oldest: int = OLDEST, newest: int = FORMAT
) -> Described | None:
    """Return what a folder says of itself; None if nothing, as those of 0.1.0. Raises UsageError if it is another's."""
    if not text:
        return None
    try:
        form = msgspec.json.decode(text, type=_Written).format
        if not oldest <= form <= newest:
            wanted = f"{oldest} to {newest}" if oldest < newest else str(newest)
            raise UsageError(f"{folder}: identity of format {form}, expected {wanted}; run the amcast that wrote it")
        found = msgspec.json.decode(text, type=Described)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise UsageError(
            f"{folder / 'identity'}: cannot be read ({error}); remove it and start this node with --rejoin"
        ) from None
    if unlike := found.cluster.unlike(expected):
        there, here = zip(*unlike, strict=True)
        raise UsageError(
            f"{folder}: data of {' and '.join(there)}, but cluster.toml says {' and '.join(here)}; "
            "put back what the file said, or make a new cluster"
        )
    return found


def refusal_of(name: str, theirs: ClusterIdentity | None, me: str, ours: ClusterIdentity) -> str | None:
    """Return why a process with another idea of the cluster cannot be let in; None if it has the same."""
    if theirs is None:
        return f"{name} does not say what its cluster is; run the same amcast everywhere"
    if not (unlike := theirs.unlike(ours)):
        return None
    there, here = zip(*unlike, strict=True)
    return f"{name} has {' and '.join(there)}, {me} has {' and '.join(here)}; give both the same cluster.toml"
