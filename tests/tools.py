"""Programs that some tests need and that are no part of amcast. `python -m tests.tools` installs what is missing.

A test without its program is skipped, and the end of the run says so. With AMCAST_FULL=1 (`make test-all`) it fails,
and what is marked as slow runs.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

FULL = bool(os.environ.get("AMCAST_FULL"))
PACKAGES = {  # of Debian
    "chromium": "chromium",
    "promtool": "prometheus",
    "redis-benchmark": "redis-tools",
    "redis-cli": "redis-tools",
    "redis-server": "redis-server",
    "strace": "strace",
    "systemd-analyze": "systemd",
}
OTHER_NAMES = {"chromium": ("chromium-browser", "google-chrome")}


def some_now(cases: Iterable[str], now: Collection[str]) -> "list[ParameterSet]":
    """Return these cases for `parametrize`; those that are not in `now` are slow (conftest.py)."""
    found = [pytest.param(case, marks=() if case in now else pytest.mark.slow) for case in cases]
    assert set(now) <= set(cases), f"{sorted(set(now) - set(cases))} are no cases"
    return found


def examples(count: int) -> int:
    """Return how many examples hypothesis tries: so many where everything runs."""
    return count if FULL else max(10, count // 4)


def found(name: str) -> str | None:
    """Return where this program is, if it is installed."""
    assert name in PACKAGES, f"{name} is no program that tests may need: expected one of {', '.join(PACKAGES)}"
    return next(filter(None, map(shutil.which, (name, *OTHER_NAMES.get(name, ())))), None)


def tool(name: str) -> str:
    """Return where this program is; a test that has none ends here."""
    path = found(name)
    if path is None:
        cannot_run(f"{name} is not installed: make tools")
    return path


def cannot_run(reason: str) -> NoReturn:
    """End a test that cannot run here: it is skipped, or fails where everything has to run."""
    if FULL:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def install() -> str:
    """Install what is missing; empty, or what is still missing and what to do."""
    missing = sorted({PACKAGES[name] for name in PACKAGES if found(name) is None})
    if not missing:
        return ""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return f"missing: {', '.join(missing)}; install them, or as root on Debian: make tools"
    print(f"== installing {' '.join(missing)}", flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
        done = subprocess.run(["apt-get", "-qq", *command], env=quiet, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"apt-get {' '.join(command)}: {' '.join((done.stderr or done.stdout).split())}"
    return ""


if __name__ == "__main__":
    sys.exit(install() or 0)
