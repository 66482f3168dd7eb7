"""Folders and files that a command writes: whole or not at all, and never over what is not its own."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from amcast.errors import UsageError
from amcast.places import Place, Remote, one_line, place_of, publish, remove_tree
from amcast.tracefile.commits import SUCCESS

# What a run may leave in the folder of its trace beside the kind=* folders.
RUN_FILES: Final = frozenset(("summary.json", "_SUCCESS", "._SUCCESS.crc"))


def prepare_out(path: str | Place, force: bool) -> Place:
    """Make `path` an empty folder. What is in it is removed only with `force`, and only if it is an old trace."""
    folder = place_of(path)
    with usable_folder(folder, "a trace") as entries:
        folder.mkdir(parents=True, exist_ok=True)
        stranger = next(_not_of_a_trace(entries), None)
        if stranger is not None:
            raise UsageError(
                f"{folder}: is not empty and is not a trace either (it holds {stranger.relative_to(folder)}); "
                f"expected an empty or new folder; choose another --out"
            )
        if entries and not force:
            raise UsageError(
                f"{folder}: holds an older trace; expected an empty or new folder; "
                f"use --force to replace it or choose another --out"
            )
        for entry in entries:
            remove_tree(entry)
    return folder


@contextmanager
def usable_folder(folder: Place, what: str) -> Iterator[list[Any]]:
    """Give what is in the folder, and turn what goes wrong with it into a UsageError. `what` is what it is for."""
    try:
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder}: is a file; expected a folder for {what}; choose another --out")
        yield sorted(folder.iterdir()) if folder.exists() else []
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be used as the folder of {what} ({one_line(error)}); "
            f"expected a folder that can be written; choose another --out"
        ) from error


def _not_of_a_trace(entries: list[Any]) -> Iterator[Any]:
    written_by_a_recorder = (".parquet", ".parquet.tmp", ".parquet.crc")
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink() and entry.name.startswith("kind="):
            for file in sorted(entry.iterdir()):
                if file.is_symlink() or not file.is_file() or not file.name.endswith(written_by_a_recorder):
                    yield file
        elif entry.is_symlink() or not entry.is_file() or entry.name not in RUN_FILES:
            yield entry


@contextmanager
def whole_folder(folder: Place) -> Iterator[Path]:
    """Give a folder to write into, which takes the place of `folder` when the block ends without an error.

    In a store, where nothing can be renamed, the file `_SUCCESS` comes last, and goes first.
    """
    if isinstance(folder, Remote):
        with tempfile.TemporaryDirectory(prefix="amcast-") as scratch:
            yield Path(scratch)
            (folder / SUCCESS).unlink(missing_ok=True)
            remove_tree(folder)
            for file in sorted(Path(scratch).iterdir()):
                publish(file, folder / file.name)
            (folder / SUCCESS).write_bytes(b"")
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
    try:
        yield unfinished
        unfinished.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def write_whole(path: Place, content: str | bytes) -> None:
    """Write a file: all of it, or nothing."""
    content = content.encode() if isinstance(content, str) else content
    if isinstance(path, Remote):
        path.write_bytes(content)
        return
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.write_bytes(content)
    os.replace(unfinished, path)
