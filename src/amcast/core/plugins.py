"""What other packages bring: rows of ours and theirs in one table, theirs found by the entry points of a group.

    [project.entry-points."amcast.protocols"]
    my_protocol = "my_package:ROW"          # a row, or a list of rows

Entry points are looked for once, when the table is first asked for something. A package that fails spoils only what it
brings: its names raise UsageError with one line that names the package, and `broken` lists these lines.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from amcast.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Named(Protocol):
    @property
    def name(self) -> str: ...


Row = TypeVar("Row", bound=Named)
OURS = "amcast"


class Table(Mapping[str, Row], Generic[Row]):
    """Rows by name. Ours are always there; a name that two other packages claim belongs to neither."""

    def __init__(self, group: str, kind: type[Row], own: Sequence[Row]) -> None:
        self.group = group
        self.kind = kind
        self.own = {row.name: row for row in own}
        self._theirs: dict[str, Row] = {}
        self._wrong: dict[str, str] = {}  # by name: why it cannot be had
        self._loaded = False

    @property
    def broken(self) -> list[str]:
        """Return a line for each plug-in that cannot be used."""
        self._load()
        return list(dict.fromkeys(self._wrong.values()))

    def unknown(self, name: str, hint: str) -> UsageError:
        """Return the error for a name that is not here."""
        what = self.kind.__name__.lower()
        failed = f"; it may belong to what failed: {self.broken[0]}" if self.broken else ""
        return UsageError(f"unknown {what} {name!r}: {hint}{failed}")

    def __getitem__(self, name: str) -> Row:
        self._load()
        if name in self._wrong and name not in self.own:
            raise UsageError(self._wrong[name])
        return self.own[name] if name in self.own else self._theirs[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter([*self.own, *(name for name in self._theirs if name not in self._wrong)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _load(self) -> None:
        if self._loaded:
            return
        from importlib.metadata import entry_points  # which takes a while to import

        self._loaded = True  # at once: what is imported below may ask for a row of ours
        packages = dict.fromkeys(self.own, OURS)
        for entry in sorted(entry_points(group=self.group), key=lambda entry: (package_of(entry), entry.name)):
            package = package_of(entry)
            try:
                rows = self._rows_of(entry)
            except (Exception, SystemExit) as error:  # whatever somebody else's module does when it is imported
                why = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
                what = f"plug-in {package}: {entry.value} cannot be used: {' '.join(why.split())}"
                self._wrong[entry.name] = f"{what}; correct it, or uninstall {package}"
                continue
            for row in rows:
                if row.name in packages:
                    what = f"{self.kind.__name__.lower()} {row.name!r} is in {packages[row.name]} and in {package}"
                    self._wrong[row.name] = f"{what}; rename one of them, or uninstall {package}"
                else:
                    packages[row.name] = package
                    self._theirs[row.name] = row

    def _rows_of(self, entry: "EntryPoint") -> list[Row]:
        found: object = entry.load()
        rows: list[Row] = []
        for row in found if isinstance(found, list | tuple) else [found]:
            if not isinstance(row, self.kind):
                raise UsageError(f"{type(row).__name__} found, expected a {self.kind.__name__} or a list of them")
            if not re.fullmatch(r"[a-z][a-z0-9_-]*", row.name):
                raise UsageError(f"name {row.name!r}: expected a-z, 0-9, _ and -, beginning with a letter")
            rows.append(row)
        return rows


def package_of(entry: "EntryPoint") -> str:
    return entry.dist.name if entry.dist is not None else entry.value.partition(":")[0]
