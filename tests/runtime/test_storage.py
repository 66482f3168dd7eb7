"""The durable log on a real disk: what was committed is found again, whatever was cut off or damaged."""

import os
import shutil
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from errno import EMFILE
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amcast.core.topology import message_id
from amcast.core.wire import AppMessage
from amcast.errors import StorageCorrupt, StorageFailure, UsageError
from amcast.runtime.history import History
from amcast.runtime.machine import REAL, Files, Limits, Machine
from amcast.runtime.seal import Seal
from amcast.runtime.sectors import SECTOR, decode_frame, encode_frame
from amcast.runtime.snapshots import HEAD
from amcast.runtime.storage import Storage
from amcast.runtime.tracing import TraceWriter


def recovered(folder: Path) -> list[bytes]:
    storage = Storage(folder, "test g0/0")
    try:
        return storage.recover().records
    finally:
        storage.close()


def in_segments_of(size: int) -> Machine:
    return Machine(limits=Limits(segment_bytes=size))


def filled(folder: Path, batches: list[list[bytes]], machine: Machine = REAL) -> None:
    storage = Storage(folder, "test g0/0", machine)
    storage.recover()
    for batch in batches:
        storage.commit(batch)
    storage.close()


BATCHES = [[b"a", b"bb"], [b""], [b"ccc" * 50, b"d"], [b"amf1 is no frame"]]


def test_what_was_committed_is_found_again(tmp_path: Path) -> None:
    filled(tmp_path, BATCHES)
    filled(tmp_path, [[b"later"]])
    assert recovered(tmp_path) == [record for batch in BATCHES for record in batch] + [b"later"]


def test_a_torn_frame_is_dropped_and_the_rest_is_kept(tmp_path: Path) -> None:
    """Each of its sectors may be there, or zeros, and the file may end anywhere."""
    filled(tmp_path, BATCHES)
    committed = [record for batch in BATCHES for record in batch]
    (whole,) = (path.read_bytes() for path in tmp_path.glob("log-*"))
    torn = encode_frame(len(BATCHES), b"x" * 1000)
    assert len(torn) == 3 * SECTOR
    for kept in range(7):  # not all three
        sectors = [torn[at : at + SECTOR] if kept & 1 << at // SECTOR else bytes(SECTOR) for at in (0, 512, 1024)]
        for length in (1, 19, 20, 511, 512, 513, 1024, 1300, 1536):
            (tmp_path / "log-0").write_bytes(whole + b"".join(sectors)[:length])
            for path in tmp_path.glob("log-[1-9]*"):
                path.unlink()
            (tmp_path / "seal").write_bytes(Seal(-1, 0, 3).encoded())
            assert recovered(tmp_path) == committed
    filled(tmp_path, [[b"after"]])
    assert recovered(tmp_path) == [*committed, b"after"]


def test_what_no_torn_frame_leaves_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, BATCHES)
    whole = (tmp_path / "log-0").read_bytes()
    torn = encode_frame(len(BATCHES), b"x" * 1000)
    for tail in (
        torn[:SECTOR] + b"\0" * 511 + b"\1",
        torn[SECTOR : 2 * SECTOR],
        torn[:SECTOR] * 2,
        encode_frame(len(BATCHES) - 1, b"again"),
        bytes(SECTOR) + encode_frame(len(BATCHES) + 1, b"later"),
        encode_frame(len(BATCHES) + 1, b"later"),
    ):
        (tmp_path / "log-0").write_bytes(whole + tail)
        with pytest.raises(StorageCorrupt, match=r"log-0: damaged at byte \d+, in frame 4 or behind it; this replica"):
            recovered(tmp_path)


def test_any_damage_of_the_log_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    filled(tmp_path, BATCHES)
    path = tmp_path / "log-0"
    whole = path.read_bytes()
    assert len(whole) == len(BATCHES) * SECTOR
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(StorageCorrupt, match="does not vote: start it with --rejoin"):
            recovered(tmp_path)
        assert path.read_bytes() == damaged and len(list(tmp_path.glob("log-*"))) == 1
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(StorageCorrupt, match=r"ends before frame \d, expected those up to 3, which were durable"):
            recovered(tmp_path)


def test_sectors_of_a_megabyte_take_little_time() -> None:
    body = os.urandom(10**6)
    best = min(timeit.repeat(lambda: encode_frame(7, body), number=1, repeat=20))
    assert decode_frame(memoryview(encode_frame(7, body)), 0) == (7, body, -(-(4 + 10**6) // 492) * SECTOR)
    assert best < 0.05, f"{best * 1000:.1f} ms; expected some 1.5 on an idle machine"


def test_snapshots_replace_the_log_before_them(tmp_path: Path) -> None:
    storage = Storage(tmp_path, "test g0/0")
    storage.recover()
    for i in range(10):
        storage.commit([b"%d" % i])
    storage.snapshot([b"state", b" after ten"])
    storage.commit([b"eleven"])
    storage.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "identity", "lock", "log-10", "place", "seal", "snapshot-10", "starts",
    ]  # fmt: skip
    storage = Storage(tmp_path, "test g0/0")
    found = storage.recover()
    assert (found.snapshot, found.records) == ([b"state after ten"], [b"eleven"])
    storage.commit([b"twelve"])
    storage.close()
    assert recovered(tmp_path) == [b"eleven", b"twelve"]


def test_segments_and_a_missing_one(tmp_path: Path) -> None:
    filled(tmp_path, [[b"x" * 100] for _ in range(10)], machine=in_segments_of(300))
    segments = sorted(tmp_path.glob("log-*"), key=lambda path: int(path.name[4:]))
    assert len(segments) > 2
    assert len(recovered(tmp_path)) == 10
    segments[1].unlink()
    with pytest.raises(StorageCorrupt, match="missing"):
        recovered(tmp_path)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.one_of(st.lists(st.binary(max_size=30), min_size=1, max_size=4), st.just("snapshot")), max_size=12),
    st.data(),
)
def test_any_history_cut_anywhere(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[bytes] | str], data: st.DataObject
) -> None:
    """Snapshot plus records is all that was committed, or the log is refused."""
    folder = tmp_path_factory.mktemp("log")
    storage = Storage(folder, "test g0/0", in_segments_of(120))
    storage.recover()
    history: list[bytes] = []
    for step in steps:
        if isinstance(step, str):
            storage.snapshot([msgspec.msgpack.encode(history)])
        else:
            storage.commit(step)
            history += step
    storage.close()
    last = max(folder.glob("log-*"), key=lambda path: int(path.name[4:]))
    size = last.stat().st_size
    keep = data.draw(st.integers(0, size))
    os.truncate(last, keep)
    storage = Storage(folder, "test g0/0")
    try:
        found = storage.recover()
    except StorageCorrupt:
        assert keep < size
        return
    finally:
        storage.close()
    known = [] if found.snapshot is None else msgspec.msgpack.decode(b"".join(found.snapshot), type=list[bytes])
    assert known + found.records == history and keep == size


def test_two_processes_cannot_use_one_folder(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, pathlib; from amcast.runtime.storage import Storage;"
            "s = Storage(pathlib.Path(sys.argv[1]), 'test g0/0'); print('held', flush=True); sys.stdin.read()",
            str(tmp_path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    with pytest.raises(UsageError, match="another process uses"):
        Storage(tmp_path, "test g0/0")
    holder.communicate(b"")
    recovered(tmp_path)


def test_data_of_another_cluster_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, BATCHES)
    with pytest.raises(UsageError, match="data of test g0/0, expected other g0/0"):
        Storage(tmp_path, "other g0/0")


@pytest.mark.parametrize("call", ["sync", "write"])
def test_a_failed_write_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    storage = Storage(tmp_path, "test g0/0")
    storage.recover()
    storage.commit([b"safe"])

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(REAL.files, call, fail)
        with pytest.raises(StorageFailure, match="Input/output error"):
            storage.commit([b"lost"])
    with pytest.raises(StorageFailure, match="must stop"):
        storage.commit([b"never again"])
    storage.close()
    assert recovered(tmp_path)[0] == b"safe"


class Failing(Files):
    """Takes only a part of one write, or opens a file no more; and minds what is closed."""

    def __init__(self) -> None:
        self.short = False
        self.refused = ""
        self.opened: dict[int, str] = {}

    def open(self, path: Path, *, append: bool = False, new: bool = False) -> int:
        if path.name == self.refused:
            raise OSError(EMFILE, os.strerror(EMFILE))
        fd = super().open(path, append=append, new=new)
        self.opened[fd] = path.name
        return fd

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self.short:
            data, self.short = data[:100], False
        return super().write(fd, data)

    def close(self, fd: int) -> None:
        del self.opened[fd]
        super().close(fd)


def test_frame_is_written_in_one_call_or_not_at_all(tmp_path: Path) -> None:
    """What a power cut leaves of two writes to one sector would look like damage."""
    files = Failing()
    storage = Storage(tmp_path, "test g0/0", Machine(files=files))
    storage.recover()
    files.short = True
    with pytest.raises(StorageFailure, match="No space left on device"):
        storage.commit([b"a"])
    storage.close()
    assert recovered(tmp_path) == []


@pytest.mark.parametrize("name", ("log-1", "seal"))
def test_what_was_closed_is_not_closed_again(tmp_path: Path, name: str) -> None:
    """The first error is the one that is told."""
    files = Failing()
    storage = Storage(tmp_path, "test g0/0", Machine(files=files, limits=Limits(segment_bytes=1)))
    storage.recover()
    storage.commit([b"a"])
    files.refused = name
    with pytest.raises(StorageFailure, match="Too many open files"):
        storage.commit([b"b"])
    storage.close()
    assert files.opened == {}
    assert recovered(tmp_path) == [b"a"]
    history = History(tmp_path / "history", 0, Machine(files=files, limits=Limits(file_bytes=1)))
    files.refused = "rows-1"
    with pytest.raises(OSError, match="Too many open files"):
        for position in range(2):
            history.append([(AppMessage(message_id(9, position), (0,), b"x"), position << 8)], 1)
            history.write(history.take_unwritten())
    history.close()
    assert files.opened == {}


def test_files_and_folders_belong_to_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        storage = Storage(tmp_path / "store" / "data", "test g0/0")
        storage.count_start()
        storage.recover()
        storage.commit([b"a"])
        storage.snapshot([b"state"])
        storage.close()
        history = History(tmp_path / "store" / "data" / "history")
        history.close()
        TraceWriter(tmp_path / "trace" / "g0-0.jsonl", "run", "g0/0", "g0").close()
    finally:
        os.umask(before)
    wrong = {
        path.name: oct(path.stat().st_mode)
        for path in tmp_path.rglob("*")
        if path.stat().st_mode & 0o777 != (0o700 if path.is_dir() else 0o600)
    }
    names = {path.name for path in tmp_path.rglob("*")}
    assert wrong == {} and {"snapshot-1", "log-1", "starts", "rows-0", "g0-0.jsonl"} <= names


class Careful(Files):
    """Complains of a name that is given to what is not on disk, and of one removed before the last one given is."""

    def __init__(self) -> None:
        self.paths: dict[int, Path] = {}
        self.unsynced: set[Path] = set()
        self.named: set[Path] = set()  # folders with names that are not synced
        self.complaints: list[str] = []
        self.removed: list[str] = []

    def open(self, path: Path, *, append: bool = False, new: bool = False) -> int:
        fd = super().open(path, append=append, new=new)
        self.paths[fd] = path
        return fd

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self.unsynced.add(self.paths[fd])
        return super().write(fd, data)

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.unsynced.discard(self.paths[fd])

    def replace(self, old: Path, new: Path) -> None:
        if old in self.unsynced:
            self.complaints.append(f"{new.name} gets its name before its content is on disk")
        if new.parent in self.named:  # a seal must not be there before what it asks for
            self.complaints.append(f"{new.name} gets its name while a name beside it is not on disk")
        self.named.add(new.parent)
        super().replace(old, new)

    def sync_folder(self, folder: Path) -> None:
        self.named.discard(folder)
        super().sync_folder(folder)

    def remove(self, path: Path) -> None:
        if path.parent in self.named:
            self.complaints.append(f"{path.name} is removed while a name beside it is not on disk")
        self.removed.append(path.name)
        super().remove(path)


def test_nothing_is_removed_before_what_replaces_it_is_on_disk(tmp_path: Path) -> None:
    files = Careful()
    storage = Storage(tmp_path, "test g0/0", Machine(files=files, limits=Limits(part_bytes=10, written_at_once=20)))
    storage.recover()
    for i in range(3):
        storage.commit([b"%d" % i])
        storage.snapshot([b"state %d" % i * 10])
    storage.close()
    assert files.complaints == [] and files.removed == ["log-0", "snapshot-1", "log-1", "snapshot-2", "log-2"]


def test_snapshot_of_many_parts_goes_on_beside_commits(tmp_path: Path) -> None:
    machine = Machine(limits=Limits(part_bytes=100, written_at_once=1000))
    storage = Storage(tmp_path, "test g0/0", machine)
    storage.recover()
    storage.commit([b"in it"])
    pieces = [b"%d," % i * i for i in range(100)]
    storage.begin_snapshot(iter(pieces))
    steps = 1
    while not storage.save_some():
        storage.commit([b"behind it %d" % steps])
        assert storage.saving
        steps += 1
    storage.close()
    found = Storage(tmp_path, "test g0/0").recover()
    assert found.snapshot is not None and set(map(len, found.snapshot[:-1])) == {100}
    assert b"".join(found.snapshot) == b"".join(pieces)
    assert found.records == [b"behind it %d" % i for i in range(1, steps)] and steps > 5


def test_snapshot_that_was_not_finished_harms_nothing_and_is_cleared_away(tmp_path: Path) -> None:
    machine = Machine(limits=Limits(part_bytes=10, written_at_once=20))
    storage = Storage(tmp_path, "test g0/0", machine)
    storage.recover()
    storage.snapshot([b"old"])
    storage.commit([b"behind it"])
    storage.begin_snapshot([b"new " * 100])
    assert not storage.save_some()
    storage.begin_snapshot([b"another " * 100])
    assert not storage.save_some()
    storage.close()
    assert [path.name for path in tmp_path.glob("*.new")] == ["snapshot-1.new"]
    storage = Storage(tmp_path, "test g0/0", machine)
    found = storage.recover()
    storage.close()
    assert found.snapshot == [b"old"] and found.records == [b"behind it"] and not list(tmp_path.glob("*.new"))


def test_each_part_of_a_snapshot_has_its_place(tmp_path: Path) -> None:
    """Swap, drop and repeat parts, all with sound checksums of their own; and take parts of another snapshot."""
    machine = Machine(limits=Limits(part_bytes=10))
    files = []
    for name, state in (("one", b"0123456789" * 4), ("other", b"abcdefghij" * 4)):
        storage = Storage(tmp_path / name, "test g0/0", machine)
        storage.recover()
        storage.snapshot([state])
        storage.close()
        files.append((tmp_path / name / "snapshot-0").read_bytes())
    size = HEAD.size + 10
    one, other = ([data[at : at + size] for at in range(0, 4 * size, size)] + [data[4 * size :]] for data in files)
    path = tmp_path / "one" / "snapshot-0"
    for parts in (
        [one[0], one[2], one[1], *one[3:]],
        [*one[:3], one[4]],
        [one[0], *one],
        [other[0], *one[1:]],
        [*one[:4], other[4]],
        one[:4],
        [*one, b"more"],
        [],
    ):
        path.write_bytes(b"".join(parts))
        storage = Storage(tmp_path / "one", "test g0/0", machine)
        with pytest.raises(StorageCorrupt, match="snapshot-0: damaged snapshot"):
            storage.recover()
        storage.close()
    path.rename(path.with_name("snapshot-1"))
    path.with_name("snapshot-1").write_bytes(b"".join(one))
    with pytest.raises(StorageCorrupt, match="snapshot-1: damaged snapshot, in part 4"):
        Storage(tmp_path / "one", "test g0/0", machine).recover()


def test_commit_that_nobody_could_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amcast.runtime.storage.LARGEST_FRAME", 100)
    storage = Storage(tmp_path, "test g0/0")
    storage.recover()
    storage.commit([b"x" * 96])
    with pytest.raises(StorageFailure, match="bytes in one commit, expected at most 100"):
        storage.commit([b"x" * 97])
    storage.close()
    assert recovered(tmp_path) == [b"x" * 96]


@pytest.mark.slow
def test_snapshot_of_more_than_a_gibibyte(tmp_path: Path) -> None:
    storage = Storage(tmp_path, "test g0/0")
    storage.recover()
    piece = bytes(range(256)) * 2**12
    storage.snapshot(piece for _ in range(1100))
    storage.commit([b"behind it"])
    storage.close()
    found = Storage(tmp_path, "test g0/0").recover()
    assert found.snapshot is not None and len(found.snapshot) == 1100 and found.records == [b"behind it"]
    assert all(part == piece for part in found.snapshot)


CRASH = """
import os, sys, pathlib
from amcast.runtime.machine import Limits, Machine
from amcast.runtime.storage import Storage
storage = Storage(pathlib.Path(sys.argv[1]), "test g0/0", Machine(limits=Limits(segment_bytes=200)))
storage.recover()
for i in range(100000):
    storage.commit([b"%d" % i])
    if i % 7 == 6:
        storage.snapshot([b"%d" % i])
    print(i, flush=True)
"""


@pytest.mark.parametrize("seen", [1, 5, 7, 20])
def test_sigkill_loses_nothing_that_was_acknowledged(tmp_path: Path, seen: int) -> None:
    writer = subprocess.Popen([sys.executable, "-c", CRASH, str(tmp_path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(seen)][-1]
    writer.kill()
    writer.wait()
    storage = Storage(tmp_path, "test g0/0")
    found = storage.recover()
    storage.close()
    first = 0 if found.snapshot is None else int(found.snapshot[0]) + 1
    numbers = [int(record) for record in found.records]
    assert numbers == list(range(first, first + len(numbers)))
    assert first + len(numbers) > acknowledged


Damage = Callable[[bytes], bytes]


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:10] + b"?" + b[11:], lambda b: b""])
def test_a_damaged_snapshot_is_refused(tmp_path: Path, damage: Damage) -> None:
    storage = Storage(tmp_path, "test g0/0")
    storage.recover()
    storage.commit([b"x"])
    storage.snapshot([b"precious"])
    storage.close()
    path = tmp_path / "snapshot-1"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StorageCorrupt, match="damaged snapshot"):
        recovered(tmp_path)


def test_a_torn_end_is_clean_if_the_seal_knows_all_before_it(tmp_path: Path) -> None:
    """A power cut may take the last records of the seal: then a frame may be missing that nobody can tell of."""
    storage = Storage(tmp_path, "test p0")
    storage.recover()
    for number in range(3):
        storage.commit([b"%d" % number * 600])
    storage.close()
    log, seal = next(tmp_path.glob("log-*")), tmp_path / "seal"
    whole, records = log.read_bytes(), seal.read_bytes()
    for torn, lost, clean in ((0, 0, True), (0, 16, True), (512, 16, True), (512, 32, False), (512, 48, False)):
        log.write_bytes(whole[: len(whole) - torn])
        seal.write_bytes(records[: len(records) - lost])
        storage = Storage(tmp_path, "test p0", new=False)
        found = storage.recover()
        storage.close()
        assert (not found.doubt, len(found.records)) == (clean, 2 if torn else 3), (torn, lost)
        again = Storage(tmp_path, "test p0", new=False)
        assert (not again.recover().doubt) == clean, "who starts once more knows no more"
        again.confirm()
        again.close()
        for path in tmp_path.glob("log-*"):
            path.unlink()


def doubt_of(folder: Path) -> str:
    storage = Storage(folder, "test g0/0", new=False)
    try:
        return storage.recover().doubt
    finally:
        storage.close()


def test_files_that_are_put_back_in_place_are_doubted_until_they_are_confirmed(tmp_path: Path) -> None:
    """As rsync does it: what looks the same stays as it is, the rest gets the content and the time of the copy."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    storage = Storage(data, "test g0/0")
    storage.recover()
    storage.commit([b"x"])
    shutil.copytree(data, copy)
    long_ago = time.time() - 3600
    for file in ("log-0", "seal"):
        os.utime(copy / file, (long_ago, long_ago))
    storage.commit([b"acknowledged"])
    storage.close()
    for file in ("log-0", "seal"):
        shutil.copy2(copy / file, data / "new")
        (data / "new").rename(data / file)
    for _ in range(2):
        assert doubt_of(data)
    storage = Storage(data, "test g0/0", new=False)
    assert storage.recover().records == [b"x"]
    storage.confirm()
    storage.close()
    assert not doubt_of(data)


def test_a_copy_of_a_folder_is_doubted_until_it_is_confirmed(tmp_path: Path) -> None:
    """All is there and whole. Only who put it there knows whether more had been written, and need not say so."""
    data = tmp_path / "data"
    storage = Storage(data, "test g0/0")
    storage.recover()
    storage.commit([b"x"])
    storage.close()
    assert not doubt_of(data)
    shutil.copytree(data, tmp_path / "copy")
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "copy", data)
    for _ in range(2):
        assert "copy" in doubt_of(data)
    storage = Storage(data, "test g0/0", new=False)
    storage.recover()
    storage.confirm()
    storage.close()
    assert not doubt_of(data)
    (data / "place").unlink()
    assert doubt_of(data)
