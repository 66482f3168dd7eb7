"""Where `--engine auto` judges a trace, and where the archive of Spark's classes is."""

from pathlib import Path

import pytest

from amcast.tracefile import size

GIB = 1 << 30


@pytest.mark.parametrize(
    ("rows", "cores", "free", "on_spark"),
    [
        (1_000, 2, 16 * GIB, False),
        (5_000_000, 2, 16 * GIB, False),  # in memory it is done before Spark has started
        (5_000_000, 2, 1 * GIB, True),  # but here it does not fit
        (40_000_000, 2, 64 * GIB, True),
        (20_000_000, 64, 64 * GIB, True),  # many cores make up for the start
        (20_000_000, 1, 64 * GIB, False),  # one core never does
    ],
)
def test_auto_goes_by_events_cores_and_free_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: int, cores: int, free: int, on_spark: bool
) -> None:
    monkeypatch.setattr(size, "count_rows", lambda trace: rows)
    assert size.spark_pays(str(tmp_path), cores, free) == on_spark


def test_what_only_spark_reads_goes_to_spark() -> None:
    assert size.spark_pays("logs/*.jsonl", 1, 64 * GIB)
    assert not size.spark_pays("does-not-exist", 1, 64 * GIB)


def test_the_system_says_how_much_memory_is_free() -> None:
    assert 1 << 20 < size.free_memory() < 1 << 50


def test_an_archive_is_for_one_java(tmp_path: Path) -> None:
    archive = pytest.importorskip("amcast.spark.archive")
    homes = [tmp_path / "one", tmp_path / "other"]
    for home in homes:
        (home / "lib").mkdir(parents=True)
        (home / "lib" / "modules").write_bytes(b"x")
    first, second = (archive.archive_of(home, tmp_path) for home in homes)
    assert first != second and first == archive.archive_of(homes[0], tmp_path)
    (homes[0] / "lib" / "modules").write_bytes(b"another")
    assert archive.archive_of(homes[0], tmp_path) != first
