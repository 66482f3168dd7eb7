"""Clean environments for packages of ours: an sdist of this tree, wheels of it, and venvs that hold nothing else.

What is built is built once for all workers of a test run, in a folder that they share.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
NEWEST = 14  # of Python 3
NOT_PACKED = ("*.so", "*.egg-info", "__pycache__", ".*", "build", "dist")


def interpreters() -> dict[str, str]:
    """Return a Python of each version that can be had here, by its version."""
    found = {f"3.{sys.version_info.minor}": sys.executable}
    for minor in range(11, NEWEST + 1):
        kept = (Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/python")
        for candidate in filter(None, (shutil.which(f"python3.{minor}"), *map(str, sorted(kept)))):
            works = subprocess.run([candidate, "-c", "import ensurepip"], capture_output=True, check=False)
            if works.returncode == 0:
                found.setdefault(f"3.{minor}", candidate)
    return found


def run(*command: object, cwd: Path | None = None, code: int = 0, **environment: str) -> str:
    """Run a command that knows nothing of the environment of the tests; return what it printed, stderr included."""
    ours = ("AMCAST_", "PYTHON", "VIRTUAL_ENV", "COLUMNS", "COV_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=clean | environment, text=True, encoding="utf-8",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert done.returncode == code, f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def built(folder: Path, pattern: str, build: Callable[[], object]) -> Path:
    """Return the one file of this pattern in the folder; whoever comes first builds it."""
    with one_at_a_time(folder):
        if not list(folder.glob(pattern)):
            build()
        (file,) = folder.glob(pattern)
        return file


def sdist(shared: Path) -> Path:
    """Return the source archive of this tree."""
    folder = shared / "sdist"

    def build() -> None:
        tree = shared / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_PACKED))
        code = f"import setuptools.build_meta as backend; backend.build_sdist({str(folder)!r})"
        run(sys.executable, "-c", code, cwd=tree)

    return built(folder, "*.tar.gz", build)


def wheel(shared: Path, version: str) -> Path:
    """Return the wheel that pip makes of the archive, as everybody's pip does: isolated, with what it can find."""
    folder = shared / f"wheel-{version}"
    archive = sdist(shared)

    def build() -> None:
        bare = venv(shared / f"bare-{version}", version)
        run(bare / "bin" / "pip", "wheel", "--no-deps", "--wheel-dir", folder, archive)

    return built(folder, "*.whl", build)


def venv(folder: Path, version: str, *packages: object, **environment: str) -> Path:
    """Return a new environment that holds these packages and what they need."""
    run(interpreters()[version], "-m", "venv", folder)
    if packages:
        run(folder / "bin" / "pip", "install", *packages, **environment)
    return folder


def megabytes(folder: Path) -> float:
    """Return what the site-packages of an environment take on disk, with pip and the compiled caches of all."""
    (site,) = folder.glob("lib/python3.*/site-packages")
    return sum(file.stat().st_blocks * 512 for file in site.rglob("*") if file.is_file()) / 1e6
