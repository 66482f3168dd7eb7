"""The package in an archive for executors: they unpack it and import it from there, compiled modules included.

Compiled modules fit one platform and one minor version of Python, which both are in the archive's name. Executors with
another one pass over them and run the sources beside them, several times slower: the first tasks find that out, and
also which libraries are missing there.
"""

import sys
import sysconfig
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import amcast
from amcast.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNPACKED: Final = "amcast_pkg"
LIBRARIES: Final = ("msgspec", "librt", "mypy_extensions", "numpy", "pandas", "pyarrow", "scipy")
PASSED_OVER: Final = ("__pycache__",)
SECONDS_ALONE: Final = 60.0  # without an executor, until that is said


def with_package(settings: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Add to settings what brings the package to executors and onto their path."""
    archive = archive_of_package(scratch)
    path = "spark.executorEnv.PYTHONPATH"
    both = {
        "spark.archives": (settings.get("spark.archives"), f"{archive}#{UNPACKED}", ","),
        path: (settings.get(path), f"./{UNPACKED}", ":"),
    }
    return {
        **settings,
        **{name: between.join(filter(None, (ours, old))) for name, (old, ours, between) in both.items()},
    }


def archive_of_package(folder: Path) -> Path:
    """Pack this package, with what it was compiled to."""
    root = Path(amcast.__file__).parent
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    python = "".join(map(str, sys.version_info[:2]))
    path = folder / f"amcast-{amcast.__version__}-cp{python}-{platform}.zip"
    shared = root.parent.glob("amcast__mypyc*.so") if amcast.compiled() else ()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in (*sorted(root.rglob("*")), *sorted(root.parent.glob("pyspark_amcast/*.py")), *shared):
            compiled = file.suffix in (".so", ".pyd")
            if file.is_file() and not set(PASSED_OVER) & set(file.parts) and (amcast.compiled() or not compiled):
                archive.write(file, file.relative_to(root.parent).as_posix())
    return path


def unpacked(scratch: Path) -> str:
    """Unpack the archive that was made here, and return where; "" if none was made."""
    for archive in scratch.glob("amcast-*.zip"):
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(scratch / UNPACKED)
        return str(scratch / UNPACKED)
    return ""


def refuse_executors(session: "SparkSession", master: str) -> None:
    """Raise UsageError if executors lack something, and warn if they run plain Python while this is compiled."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    libraries = LIBRARIES

    def look(numbers: Iterable[int]) -> Iterator[dict[str, Any]]:  # by value: executors may not have this module
        import socket
        import sys
        from importlib import import_module
        from importlib.util import find_spec

        missing = [name for name in (*libraries, "amcast") if find_spec(name) is None]
        found = None if "amcast" in missing else import_module("amcast")
        yield {
            "host": socket.gethostname(),
            "python": f"{sys.executable} ({sys.version_info[0]}.{sys.version_info[1]})",
            "missing": missing,
            "compiled": found is not None and found.compiled(),
            "version": None if found is None else found.__version__,
        }

    context = session.sparkContext
    tasks = max(2, context.defaultParallelism)
    try:
        with said_if_alone(session, master):
            seen = context.parallelize(range(tasks), tasks).mapPartitions(look).collect()
    except (PySparkException, Py4JError) as error:
        raise UsageError(
            f"Spark at {master} cannot run Python as it is here ({first_line(error)}); expected Python "
            f"{sys.version_info[0]}.{sys.version_info[1]} on executors; set PYSPARK_PYTHON to where they have it"
        ) from error
    for one in seen:
        if one["missing"]:
            raise UsageError(
                f"Spark at {master}: {one['python']} on {one['host']} lacks {', '.join(one['missing'])}; expected "
                f"what 'amcast[spark]' needs; install it there, or set PYSPARK_PYTHON to a Python that has it"
            )
        if one["version"] != amcast.__version__:
            raise UsageError(
                f"Spark at {master}: {one['host']} has amcast {one['version']}, here is {amcast.__version__}; "
                f"expected the same; install it there, or leave out spark.amcast.ship=false"
            )
    slow = sorted({f"{one['python']} on {one['host']}" for one in seen if not one["compiled"]})
    if slow and amcast.compiled():
        sys.stderr.write(
            f"amcast: executors run plain Python, several times slower than compiled: {', '.join(slow)}; "
            f"the archive is of Python {sys.version_info[0]}.{sys.version_info[1]} for {sysconfig.get_platform()}\n"
        )


@contextmanager
def said_if_alone(session: "SparkSession", master: str, seconds: float = SECONDS_ALONE) -> Iterator[None]:
    """Say once that the master gives no executor. It may be busy, so the wait goes on."""

    def say() -> None:
        with suppress(Exception):  # the session may be about to end
            if session._jsc.sc().getExecutorMemoryStatus().size() > 1:
                return
            size = session.sparkContext.getConf().get("spark.executor.memory", "1g")
            sys.stderr.write(
                f"amcast: Spark at {master} has given no executor for {seconds:.0f} s, still waiting; expected a "
                f"worker with a free core and {size} of memory; add one, or set spark.executor.memory lower\n"
            )

    timer = threading.Timer(seconds, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def first_line(error: BaseException) -> str:
    """Return what an exception says, without its stack: the innermost Java message if there is one."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    messages: list[str] = []
    while java is not None and len(messages) < 20:
        messages.append(str(java.getMessage() or java.getClass().getSimpleName()))
        java = java.getCause()
    text = messages[-1] if messages else str(error)
    return " ".join(text.strip().partition("\n")[0].split())[:300] or type(error).__name__
