"""Places of traces and results: folders of this machine, and those that an URI names, by one set of names.

`place_of` makes a `Path` of a plain path or a `file://` URI, and a `Remote` of the URI of an object store. A Remote has
those names of `pathlib.Path` that this package uses, so whoever reads or writes need not know which of the two it has.

A store has no rename. An object appears there when all of it is written, so a result of several objects needs one that
is written last and says that the others are whole. A Remote can be sent to executors: what the environment says about
the store, credentials included, goes along, and never stands in a text that is shown.
"""

import io
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TypeAlias
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from amcast.errors import UsageError

SCHEMES: Final = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "hdfs": "hdfs", "viewfs": "viewfs"}
KNOWN: Final = "expected a path, or file://, s3://, gs:// or hdfs://"
HOW: Final = {
    "s3": "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and, if it is not Amazon's, AWS_ENDPOINT_URL",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS",
    "hdfs": "set JAVA_HOME, HADOOP_HOME with libhdfs.so, and CLASSPATH (hadoop classpath --glob)",
}
TAKEN_ALONG: Final = re.compile("AWS_[A-Z_]+|GOOGLE_APPLICATION_CREDENTIALS")  # from the environment to executors
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def is_uri(text: str) -> bool:
    return _URI.match(text) is not None


def place_of(text: "str | Place") -> "Place":
    """Return the place that a path or an URI names. Raises UsageError at once for one that cannot be used."""
    if not isinstance(text, str):
        return text
    found = _URI.match(text)
    if found is None:
        return Path(text)
    scheme = found[1].lower()
    if scheme == "file":
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise UsageError(f"{text}: names another machine; expected file:///path, with three slashes")
        return Path(unquote(text[len(found[0]) + len(parts.netloc) :]))
    if scheme not in SCHEMES:
        raise UsageError(f"{text}: there is no storage {scheme}://; {KNOWN}")
    address, _, query = text[len(found[0]) :].partition("?")
    if "@" in address.partition("/")[0]:
        shown = f"{scheme}://{address.rpartition('@')[2]}"
        raise UsageError(f"{shown}: holds credentials, which would be shown; leave them out and {HOW['s3']}")
    place = Remote(SCHEMES[scheme], re.sub("/+", "/", address).rstrip("/"), query)
    place.refuse_unusable()
    return place


class Remote:
    """A place in an object store or another file system that pyarrow reaches."""

    def __init__(self, scheme: str, address: str, query: str = "", kind: str | None = None) -> None:
        self.scheme, self.address, self.query = scheme, address, query
        self._kind = kind  # "file" or "folder" if a listing said so

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}" + (f"?{self.query}" if self.query else "")

    __repr__ = __str__

    def __fspath__(self) -> str:
        raise TypeError(f"{self}: is no file of this machine")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and str(self) == str(other)

    def __lt__(self, other: "Remote") -> bool:
        return self.address < other.address

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        known = {name: value for name, value in os.environ.items() if TAKEN_ALONG.fullmatch(name)}
        return _arrived, (self.scheme, self.address, self.query, self._kind, known)

    # ---------------------------------------------------------------- names

    def _at(self, address: str, kind: str | None = None) -> Self:
        return type(self)(self.scheme, address, self.query, kind)

    def __truediv__(self, name: str) -> Self:
        return self._at(f"{self.address}/{name}")

    @property
    def name(self) -> str:
        return self.address.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix

    @property
    def stem(self) -> str:
        return Path(self.name).stem

    @property
    def parent(self) -> Self:
        return self._at(self.address.rpartition("/")[0] or self.address)

    def with_name(self, name: str) -> Self:
        return self.parent / name

    def with_suffix(self, suffix: str) -> Self:
        return self.parent / (self.stem + suffix)

    def relative_to(self, folder: "Remote") -> Path:
        return Path(self.address).relative_to(folder.address)

    def absolute(self) -> Self:
        return self

    # ---------------------------------------------------------------- what is there

    @property
    def filesystem(self) -> Any:
        """The file system of pyarrow. Raises UsageError if there is none."""
        return _filesystem(self.scheme, self.address.partition("/")[0], self.query)

    @property
    def path(self) -> str:
        """How the file system names this place."""
        return self.address if self.scheme in ("s3", "gs") else f"/{self.address.partition('/')[2]}"

    def refuse_unusable(self) -> None:
        """Raise UsageError unless the store answers and has the bucket."""
        bucket = self.address.partition("/")[0]
        if self.scheme in ("s3", "gs") and not bucket:
            raise UsageError(f"{self}: names no bucket; expected {self.scheme}://bucket/name")
        root = self._at(bucket)
        try:
            found = root.exists()
        except OSError as error:
            raise UsageError(f"{self}: cannot be reached ({one_line(error)}); {HOW.get(self.scheme, KNOWN)}") from error
        if not found:
            raise UsageError(f"{self}: there is no bucket {bucket}; make it, or correct its name")

    def _info(self) -> Any:
        return self.filesystem.get_file_info(self.path)

    def _is(self, kind: str) -> bool:
        if self._kind is not None:
            return self._kind == kind
        return bool(self._info().type.name == {"file": "File", "folder": "Directory"}[kind])

    def exists(self) -> bool:
        return self._kind is not None or self._info().type.name != "NotFound"

    def is_file(self) -> bool:
        return self._is("file")

    def is_dir(self) -> bool:
        return self._is("folder")

    def is_symlink(self) -> bool:
        return False

    def iterdir(self) -> Iterator[Self]:
        """Yield what is directly in the folder; nothing if it is not there."""
        yield from self._listed(recursive=False)

    def rglob(self, pattern: str) -> Iterator[Self]:
        """Yield the files at any depth whose names end as the pattern, `*` or `*.suffix`, says."""
        yield from (found for found in self._listed(recursive=True) if found.name.endswith(pattern.removeprefix("*")))

    def _listed(self, recursive: bool) -> list[Self]:
        import pyarrow.fs

        selector = pyarrow.fs.FileSelector(self.path, recursive=recursive, allow_not_found=True)
        kinds = {"File": "file", "Directory": "folder"}
        return [
            self._at(self.address + info.path.rstrip("/")[len(self.path) :], kinds[info.type.name])
            for info in self.filesystem.get_file_info(selector)
            if info.type.name in kinds
        ]

    # ---------------------------------------------------------------- content

    def open(self, mode: str = "rb") -> BinaryIO:
        assert mode == "rb", "objects are written as a whole"
        return io.BufferedReader(self.filesystem.open_input_file(self.path))

    def read_bytes(self) -> bytes:
        with self.filesystem.open_input_file(self.path) as file:
            return bytes(file.readall())

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.read_bytes().decode(encoding, errors)

    def write_bytes(self, content: bytes) -> None:
        with self.filesystem.open_output_stream(self.path) as file:
            file.write(content)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a folder where folders are things of their own; in a store of objects they are parts of names."""
        if self.scheme not in ("s3", "gs"):
            self.filesystem.create_dir(self.path, recursive=True)

    def unlink(self, missing_ok: bool = False) -> None:
        if not missing_ok or self.exists():
            self.filesystem.delete_file(self.path)


Place: TypeAlias = Path | Remote


def publish(file: Path, to: Place) -> None:
    """Give a complete file of this machine its place: it appears there whole or not at all."""
    to.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(to, Path):
        os.replace(file, to)
        return
    with file.open("rb") as source, to.filesystem.open_output_stream(to.path) as target:
        shutil.copyfileobj(source, target, 8 << 20)


def remove_tree(place: Place) -> None:
    """Remove a file or a folder with all that is in it; nothing happens if it is not there. Raises OSError."""
    if isinstance(place, Remote):
        if place.is_dir():
            place.filesystem.delete_dir(place.path)
        else:
            place.unlink(missing_ok=True)
    elif place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def stamp(place: Place) -> tuple[int, int]:
    """Return the size of a file and when it was last written, in ns. Raises OSError."""
    if isinstance(place, Path):
        found = place.stat()
        return found.st_size, found.st_mtime_ns
    info = place._info()
    if info.type.name != "File":
        raise FileNotFoundError(2, "No such file", str(place))
    return info.size, info.mtime_ns or 0


def one_line(error: BaseException) -> str:
    """Return what an error says, in one line without its number."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(said.split())[:300]


def _arrived(scheme: str, address: str, query: str, kind: str | None, environment: Mapping[str, str]) -> Remote:
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    return Remote(scheme, address, query, kind)


@cache
def _filesystem(scheme: str, host: str, query: str) -> Any:
    uri = f"{scheme}://{host}"
    try:
        import pyarrow.fs

        if scheme == "s3":
            query = _with_endpoint(query)
        elif scheme == "gs" and "retry_limit_seconds" not in query:
            query = f"{query}&retry_limit_seconds=10".lstrip("&")
        found, _ = pyarrow.fs.FileSystem.from_uri(
            f"{uri}/{'' if scheme == 'hdfs' else 'x'}" + f"?{query}" * bool(query)
        )
    except (OSError, ValueError, NotImplementedError) as error:
        raise UsageError(f"{uri}: cannot be used ({one_line(error)}); {HOW.get(scheme, KNOWN)}") from error
    return found


def _with_endpoint(query: str) -> str:
    """Add the endpoint and the region that the environment names, as other programs do that use a store."""
    options = dict(parse_qsl(query))
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and "endpoint_override" not in options:
        scheme, _, address = endpoint.rpartition("://")
        options |= {"endpoint_override": address.rstrip("/"), "scheme": scheme or "https"}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region and "region" not in options:
        options["region"] = region
    return urlencode(options)
