"""Objects as plain values: the same for two objects exactly if no step can tell them apart.

Compiled classes have no `__dict__`, but a descriptor per attribute, so any process can be read without its help.
Mappings keep their order, since a protocol may depend on it. An object that is referred to twice is written once.
"""

from collections import deque
from enum import Enum
from hashlib import blake2b
from types import GetSetDescriptorType, MemberDescriptorType

from amcast.core.process import Effects, Params
from amcast.core.topology import Topology
from amcast.core.wire import AppMessage, Message

ATOMS = frozenset({int, str, bytes, bool, float, type(None)})
VALUES = (AppMessage, Message)  # never change: one object or two equal ones, it makes no difference
SURROUNDINGS: tuple[type, ...] = (Topology, Params, Effects)  # the same for every state of a process

_attributes: dict[type, tuple[str, ...]] = {}


def attributes(value: object) -> list[str]:
    """Return the names of an object's attributes, in order."""
    kind = type(value)
    names = _attributes.get(kind)
    if names is None:
        fields = (GetSetDescriptorType, MemberDescriptorType)
        found = {
            name
            for base in kind.__mro__
            for name, field in vars(base).items()
            if isinstance(field, fields) and not name.startswith("__")
        }
        names = _attributes[kind] = tuple(sorted(found))
    own = getattr(value, "__dict__", None)
    return sorted({*names, *own}) if own else list(names)


def plain(value: object, skip: tuple[type, ...] = SURROUNDINGS) -> object:
    """Return an object as nested lists of atoms. Objects of the types in `skip` are left out."""
    return _plain(value, skip, {})


def _plain(value: object, skip: tuple[type, ...], seen: dict[int, int]) -> object:
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is tuple:
        return [item if type(item) in ATOMS else _plain(item, skip, seen) for item in value]  # type: ignore[attr-defined]
    if isinstance(value, skip):
        return None
    if not isinstance(value, VALUES):
        known = seen.get(id(value))
        if known is not None:
            return ("=", known)
        seen[id(value)] = len(seen)
    if kind is list or kind is deque or kind.__name__.startswith("vec"):
        return [item if type(item) in ATOMS else _plain(item, skip, seen) for item in value]  # type: ignore[attr-defined]
    if kind is dict:
        return [(_plain(k, skip, seen), _plain(v, skip, seen)) for k, v in value.items()]  # type: ignore[attr-defined]
    if kind is set or kind is frozenset:
        return ["set", *sorted(repr(_plain(item, skip, seen)) for item in value)]  # type: ignore[attr-defined]
    if kind is bytearray:
        return bytes(value)  # type: ignore[call-overload]
    if isinstance(value, Enum):
        return (kind.__name__, value.name)
    names = attributes(value)
    if not names and not kind.__module__.startswith(("amcast.", "mutant")):
        raise TypeError(f"cannot read a {kind.__name__}")
    fields: list[object] = [kind.__name__]
    for name in names:
        try:
            item = getattr(value, name)
        except AttributeError:  # not set yet
            continue
        fields.append(name)
        fields.append(item if type(item) in ATOMS else _plain(item, skip, seen))
    return fields


def digest(value: object) -> bytes:
    """Return the digest of a plain value."""
    return blake2b(repr(value).encode(), digest_size=16).digest()
