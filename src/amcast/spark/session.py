"""The one place that makes a Spark session: quiet, local unless told otherwise, and gone when the work is done.

Where the work runs is decided by the first of these that says it: the arguments of `open_session` (options of a
command), the environment (AMCAST_SPARK_MASTER, and AMCAST_SPARK_CONF as `key=value;key=value`), the spark-submit that
started this program. Else it runs on all cores of this machine. A session that is already open in this process is used
and left open.

The JVM gets a folder of its own for everything that it writes, its log included, and never writes to the terminal. It
is in a session of its own as well, so Ctrl-C reaches only the Python program, which then cancels what is running.

On a master other than `local` the package goes to the executors as an archive (`amcast.spark.shipping`), compiled if it
is compiled here, so that they run what the driver runs. They need its dependencies, but not the package:
`spark.amcast.ship=false` leaves it to them. What they lack is found out before the work begins.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from amcast.errors import UsageError
from amcast.spark.archive import FLAGS, option_for
from amcast.spark.java import find_java
from amcast.spark.shipping import first_line, refuse_executors, unpacked, with_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession

MASTER_VARIABLE: Final = "AMCAST_SPARK_MASTER"
SETTINGS_VARIABLE: Final = "AMCAST_SPARK_CONF"
SHIP: Final = "spark.amcast.ship"
PYTHON: Final = "spark.pyspark.python"
ATTEMPTS: Final = 3  # of a task; plain local[N] never tries again
SECONDS_TO_STOP: Final = 20.0
GIB: Final = 1 << 30

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "64m",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.catalogImplementation": "in-memory",
}
LOCAL_DEFAULTS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
QUIET: Final = """status = off
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


@contextmanager
def open_session(
    app: str,
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    brief: bool = False,
    seconds_to_stop: float = SECONDS_TO_STOP,
) -> Iterator["SparkSession"]:
    """Open a session for the time of the block. Raises UsageError without Java, or for a setting Spark refuses.

    `brief`: the JVM itself has little to do, so it should start fast rather than become fast.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        yield SparkSession.builder.getOrCreate()
        return
    asked = {**settings_of(os.environ.get(SETTINGS_VARIABLE, "").split(";"), SETTINGS_VARIABLE), **(settings or {})}
    where = master or asked.pop("spark.master", None) or os.environ.get(MASTER_VARIABLE)
    refuse_connect(where or os.environ.get("SPARK_REMOTE", ""))
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        with submitted(app, where, asked) as session:
            yield session
        return
    where = where or f"local[*,{ATTEMPTS}]"
    scratch = Path(tempfile.mkdtemp(prefix="amcast-spark-"))
    try:
        conf = all_settings(app, where, asked, scratch, brief)
        with interrupt_handler_kept(), launched(conf, where, scratch, seconds_to_stop) as session:
            if not is_local(where):
                refuse_executors(session, where)
            yield session
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def is_asked_for(master: str | None, settings: Mapping[str, str] | None) -> bool:
    """Return whether anybody wants Spark to do the work, or one is there already."""
    from pyspark import SparkContext

    said = (MASTER_VARIABLE, SETTINGS_VARIABLE, "PYSPARK_GATEWAY_PORT")
    return bool(master or settings or any(map(os.environ.get, said)) or SparkContext._active_spark_context)


def settings_of(pairs: Iterable[str], source: str) -> dict[str, str]:
    """Read `key=value` texts as Spark settings. `source` is the option or variable that they come from."""
    found = {}
    for pair in pairs:
        if not pair.strip():
            continue
        key, equals, value = pair.strip().partition("=")
        if not equals or not key.startswith("spark."):
            raise UsageError(f"{source} {pair!r}: expected spark.some.key=value, such as spark.driver.memory=8g")
        found[key] = value
    return found


def refuse_connect(master: str) -> None:
    """Raise UsageError for Spark Connect: its sessions have no SparkContext, which job groups and storage need here."""
    if master.startswith("sc://"):
        raise UsageError(
            f"{master}: is Spark Connect; expected the master itself, as spark://host:7077, yarn or k8s://…"
        )


def is_local(master: str) -> bool:
    """Return whether executors run inside the driver's JVM."""
    return master == "local" or master.startswith("local[")


def on_this_machine(master: str) -> bool:
    return is_local(master) or master.startswith("local-cluster[")


def driver_memory() -> str:
    """Return a quarter of the machine, from 1 to 4 GiB: most of the work is in Arrow and in Python."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        physical = 8 * GIB
    return f"{max(1, min(4, physical // (4 * GIB)))}g"


def all_settings(app: str, master: str, asked: Mapping[str, str], scratch: Path, brief: bool = False) -> dict[str, str]:
    """Return what Spark is started with: our settings, overridden by what was asked for."""
    quiet = scratch / "log4j2.properties"
    quiet.write_text(QUIET)
    ours = {
        **DEFAULTS,
        **(LOCAL_DEFAULTS if on_this_machine(master) else {}),
        "spark.app.name": app,
        "spark.master": master,
        "spark.driver.memory": driver_memory(),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if on_this_machine(master):
        ours["spark.local.dir"] = str(scratch / "local")
    options = f"-Dlog4j2.configurationFile={quiet.as_uri()} -Dderby.system.home={scratch} {FLAGS}"
    if brief:
        options += " -XX:TieredStopAtLevel=1"  # halves the CPU time of the first ten seconds
    merged = {**ours, **asked}
    if not is_local(master) and asked.get(SHIP, "true").lower() != "false":
        merged = with_package(merged, scratch)
    for jvm in ("driver", "executor") if on_this_machine(master) else ("driver",):
        name = f"spark.{jvm}.extraJavaOptions"
        merged[name] = f"{options} {asked[name]}" if name in asked else options
    return merged


@contextmanager
def launched(
    settings: Mapping[str, str], master: str, scratch: Path, seconds_to_stop: float = SECONDS_TO_STOP
) -> Iterator["SparkSession"]:
    """Open a session in a JVM that starts and ends with it."""
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    java = find_java(scratch)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    if is_local(master):
        options = "spark.driver.extraJavaOptions"
        conf.set(options, settings[options] + option_for(java))
    log = scratch / "spark.log"
    variables = {"JAVA_HOME": str(java), "PYSPARK_SUBMIT_ARGS": "pyspark-shell"}
    if on_this_machine(master):
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
        variables["SPARK_WORKER_DIR"] = str(scratch / "work")
        variables["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if PYTHON in settings:  # which has no effect by itself in a program that is not started by spark-submit
        variables["PYSPARK_PYTHON"] = settings[PYTHON]
    if not is_local(master):  # for the process beside the driver that plans streams: it is of the executors' Python
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (unpacked(scratch), os.environ.get("PYTHONPATH"))))
    with environment(variables), log.open("wb") as output:
        streams = {"stdout": output, "stderr": output, "start_new_session": True}
        try:
            gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise UsageError(f"Spark did not start with {java / 'bin/java'}: {last_words(log)}") from error
    session = None
    try:
        try:
            with environment(variables):
                context = SparkContext(gateway=gateway, conf=conf)
            session = SparkSession(context)
        except Exception as error:
            raise UsageError(f"Spark at {master} did not start: {first_line(error)}") from error
        yield session
    except Py4JJavaError as error:
        error.add_note(str(error))  # the text of a Java exception is in the JVM, which is about to go
        raise
    finally:
        if session is not None:
            with suppress(Exception):
                session.stop()
        end(gateway, seconds_to_stop)


@contextmanager
def submitted(app: str, master: str | None, asked: Mapping[str, str]) -> Iterator["SparkSession"]:
    """Open a session in the JVM of the spark-submit that runs this program. Its settings come before ours."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()
    conf = SparkConf()  # with what spark-submit was told
    where = master or conf.get("spark.master", "") or ""
    for key, value in {**DEFAULTS, **(LOCAL_DEFAULTS if on_this_machine(where) else {})}.items():
        conf.setIfMissing(key, value)
    conf.setAll([("spark.app.name", app), *asked.items()])
    if master is not None:
        conf.setMaster(master)
    with tempfile.TemporaryDirectory(prefix="amcast-spark-") as scratch:
        if not is_local(where) and (conf.get(SHIP, "true") or "").lower() != "false":
            conf.setAll(list(with_package(dict(conf.getAll()), Path(scratch)).items()))
        session = SparkSession(SparkContext(conf=conf))
        try:
            if not is_local(where):
                refuse_executors(session, where)
            yield session
        finally:
            session.stop()


def end(gateway: Any, seconds_to_stop: float = SECONDS_TO_STOP) -> None:
    """Shut the gateway down and wait for its JVM, which otherwise outlives the session."""
    from pyspark import SparkContext

    with suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    process = gateway.proc
    if process is None:
        return
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(seconds_to_stop)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these variables for the time of the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def interrupt_handler_kept() -> Iterator[None]:
    """Put our handler back after the block: Spark replaces it for good."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        with suppress(ValueError):  # not the main thread, in which case Spark did not do it either
            signal.signal(signal.SIGINT, before)


def last_words(log: Path) -> str:
    """Say why a JVM ended before it began: the first thing in its log besides warnings."""
    lines = (line.strip() for line in log.read_text(errors="replace").splitlines())
    said = (line for line in lines if line and not line.startswith(("WARNING", "Using Spark's", "Setting default")))
    return next(said, "it said nothing")[:300]
