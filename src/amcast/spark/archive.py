"""An archive of the classes that Spark loads, so that its JVM starts in about half the CPU time.

It takes half a minute to make and about 160 MB, so it is made only when somebody asks for it (`amcast spark-archive`).
It is kept in the user's cache folder, under a name that stands for Java, pyspark and the flags of the JVM; a JVM that
cannot use an archive ignores it.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from amcast.errors import UsageError

FLAGS: Final = "-XX:+UseParallelGC"
SECONDS_TO_WRITE: Final = 300.0


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "amcast"


def archive_of(java: Path, folder: Path | None = None) -> Path:
    """Return where the archive for this Java is, or would be."""
    import pyspark

    modules = (java / "lib" / "modules").resolve()
    seen = modules.stat() if modules.exists() else None
    where = Path(pyspark.__file__).resolve().parent
    key = (str(modules), seen and (seen.st_size, seen.st_mtime_ns), pyspark.__version__, str(where), FLAGS)
    name = hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()
    return (folder or cache_folder()) / f"spark-{name}.jsa"


def option_for(java: Path) -> str:
    """Return what makes a JVM use the archive; nothing if there is none."""
    archive = archive_of(java)
    return f" -XX:SharedArchiveFile={archive}" if archive.is_file() else ""


def make_archive(folder: Path | None = None) -> Path:
    """Make the archive anew for the Java that is found here, and return where it is. Raises UsageError."""
    from amcast.spark.java import find_java
    from amcast.spark.session import open_session

    with tempfile.TemporaryDirectory(prefix="amcast-java-") as scratch:
        archive = archive_of(find_java(Path(scratch)), folder)
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{archive}: cannot be written ({error.strerror}); set XDG_CACHE_HOME") from error
    unfinished = archive.with_suffix(".tmp")
    settings = {"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={unfinished}"}
    master = f"local[{os.cpu_count() or 1},3]"
    with open_session("amcast", master=master, settings=settings, seconds_to_stop=SECONDS_TO_WRITE) as spark:
        rows = spark.range(0, 4, 1, 4).mapInArrow(lambda batches: batches, "id long").persist()
        rows.repartitionById(2, rows.id.cast("int")).mapInArrow(lambda batches: batches, "id long").toArrow()
        rows.where("id > 1").groupBy("id").count().toArrow()
        rows.unpersist()
    if not unfinished.is_file() or not unfinished.stat().st_size:
        unfinished.unlink(missing_ok=True)
        raise UsageError(f"{archive}: was not written by Java ({sys.platform}); expected one that archives classes")
    os.replace(unfinished, archive)
    return archive
